"""Settings of security: listeners' TLS, logins, access control, tokens, quotas, audit.

Secrets are named, not written: `file:PATH` or `env:NAME`, read once at the start (`secrets`).
"""

from typing import Annotated, Literal

from streamhouse.config.fields import MIB, Section, about


class SecuritySettings(Section, frozen=True, kw_only=True):
    authorization: Annotated[
        Literal["none", "acls"],
        about("`acls`: callers may do only what access rules allow; `none`: no access control"),
    ] = "none"
    super_users: Annotated[
        str, about("principals that may do everything, with commas: User:admin,User:ops; see also bootstrap_user")
    ] = ""
    allow_everyone_if_no_acl_found: Annotated[
        bool, about("allow everything on a resource that no access rule names, as Kafka's setting of this name does")
    ] = False
    allow_anonymous_network_access: Annotated[
        bool,
        about(
            "start although other machines reach a listener without login: any client on that network can then read, "
            "write and delete everything that ANONYMOUS may"
        ),
    ] = False
    listener_tenants: Annotated[
        str,
        about(
            "listeners whose clients belong to a tenant, as LISTENER:TENANT with commas; who logs in there as alice is "
            "the user TENANT~alice. Agents' first listeners can't be among them"
        ),
    ] = ""
    bootstrap_user: Annotated[str, about("super user that is created at the start if it doesn't exist")] = ""
    bootstrap_password: Annotated[str, about("password of bootstrap_user, as file:PATH or env:NAME")] = ""
    cluster_secret: Annotated[
        str,
        about(
            "secret that agents, SQL workers and supervisors of one cluster share, as file:PATH or env:NAME; at least "
            "16 characters. Needed with authorization=acls when there is more than one process"
        ),
    ] = ""

    tls_certificate: Annotated[str, about("PEM file with the certificate of TLS listeners and its chain")] = ""
    tls_key: Annotated[str, about("PEM file with the private key of tls_certificate")] = ""
    tls_key_password: Annotated[str, about("password of tls_key, as file:PATH or env:NAME; empty: none")] = ""
    tls_ca: Annotated[
        str, about("PEM file with the authorities that sign certificates of clients and of other agents")
    ] = ""
    tls_min_version: Annotated[Literal["1.2", "1.3"], about("oldest version of TLS that is accepted")] = "1.2"
    tls_client_auth: Annotated[
        Literal["none", "requested", "required"], about("whether clients of TLS listeners show a certificate (mTLS)")
    ] = "none"
    tls_principal_rules: Annotated[
        str,
        about(
            "how the subject of a client's certificate becomes a user's name, as Kafka's ssl.principal.mapping.rules: "
            "RULE:PATTERN/REPLACEMENT/[LU], with commas, DEFAULT at the end; `SAN:email`, `SAN:dns` and `SAN:uri` take "
            "the first such alternative name"
        ),
    ] = "DEFAULT"
    tls_reload_s: Annotated[float, about("time between looks at whether certificate files have changed", gt=0)] = 10.0

    sasl_mechanisms: Annotated[
        str, about("SASL mechanisms that Kafka clients may use, with commas; OAUTHBEARER also takes cluster tokens")
    ] = "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER"
    scram_iterations: Annotated[
        int, about("iterations of newly stored SCRAM credentials; each login costs as many", ge=4096, le=1_000_000)
    ] = 4096
    max_reauth_s: Annotated[
        float,
        about(
            "a Kafka client must log in again after so long, or when its credentials expire (KIP-368); 0: never", ge=0
        ),
    ] = 0.0
    login_timeout_s: Annotated[float, about("a client must have logged in within this time", gt=0)] = 10.0
    login_request_bytes: Annotated[int, about("largest request before a client has logged in", gt=0)] = 128 * 1024
    login_token_bytes: Annotated[int, about("largest SASL message, and largest bearer token", gt=0)] = 16 * 1024
    failed_login_delay_s: Annotated[
        float, about("delay of the answer to a failed login; logins of one address wait for each other", ge=0)
    ] = 0.1
    max_logins: Annotated[int, about("logins whose passwords are checked at once; more wait", gt=0)] = 4
    max_waiting_logins: Annotated[int, about("logins that wait to be checked; more are refused", ge=0)] = 1000
    login_cache_entries: Annotated[
        int, about("verified passwords and API keys that are remembered for login_cache_s, as hashes", ge=0)
    ] = 10_000
    login_cache_s: Annotated[float, about("how long a verified password or API key is remembered", ge=0)] = 60.0

    oauth_issuer: Annotated[str, about("issuer (`iss`) whose bearer tokens are accepted; empty: none")] = ""
    oauth_jwks_url: Annotated[str, about("https address of the issuer's keys (JWKS)")] = ""
    oauth_audience: Annotated[str, about("audience (`aud`) that tokens must have")] = ""
    oauth_principal_claim: Annotated[str, about("claim that holds the user's name")] = "sub"
    oauth_groups_claim: Annotated[str, about("claim that holds the names of the user's groups; empty: no groups")] = ""
    oauth_scope: Annotated[str, about("scope that tokens must have; empty: any")] = ""
    oauth_client_id: Annotated[
        str, about("client as which the console logs in at the provider (code flow with PKCE); empty: it doesn't")
    ] = ""
    oauth_authorize_url: Annotated[str, about("https address of the provider's login, for oauth_client_id")] = ""
    oauth_token_url: Annotated[str, about("https address that gives tokens for codes, for oauth_client_id")] = ""
    oauth_clock_skew_s: Annotated[float, about("how far the clocks of issuer and agent may differ", ge=0)] = 30.0
    oauth_refresh_s: Annotated[float, about("time between fetches of the issuer's keys", gt=0)] = 3600.0
    oauth_timeout_s: Annotated[float, about("deadline of fetching the issuer's keys", gt=0)] = 5.0
    oauth_max_bytes: Annotated[int, about("largest set of keys that is read", gt=0)] = 256 * 1024
    oauth_ca: Annotated[str, about("PEM file with the authorities of the issuer's https; empty: the system's")] = ""

    audit: Annotated[
        Literal["off", "log", "topic"],
        about("where logins, refusals and administrative acts are recorded; `topic`: in the log and in audit_topic"),
    ] = "log"
    audit_topic: Annotated[str, about("topic of audit events; only agents may write to it, change it or delete it")] = (
        "__audit"
    )
    audit_events_per_s: Annotated[
        int, about("different logins and administrative acts of one second that are written; more are counted", gt=0)
    ] = 1000
    audit_refusals_per_s: Annotated[
        int, about("different refusals and failed logins of one second that are written; more are counted", gt=0)
    ] = 100
    audit_buffer_events: Annotated[
        int, about("audit events that wait while the topic can't be written; the oldest go first", gt=0)
    ] = 10_000
    audit_retention_s: Annotated[float, about("how long the audit topic keeps events", gt=0)] = 30 * 86_400.0
    audit_retention_bytes: Annotated[int, about("how much the audit topic keeps, of each partition", gt=0)] = 1024 * MIB
    refresh_s: Annotated[
        float, about("time between reloads of rules, users and quotas while change notifications are down", gt=0)
    ] = 1.0
    decision_cache_entries: Annotated[int, about("access decisions that are remembered until rules change", gt=0)] = (
        100_000
    )
    max_acls: Annotated[int, about("access rules that the cluster may have", gt=0)] = 100_000
    max_users: Annotated[int, about("users that the cluster may have", gt=0)] = 100_000
    max_keys: Annotated[int, about("API keys that the cluster may have", gt=0)] = 100_000
    max_delegation_tokens: Annotated[int, about("delegation tokens that the cluster may have", gt=0)] = 10_000
    delegation_token_max_s: Annotated[float, about("longest life of a delegation token", gt=0)] = 7 * 86_400.0
    delegation_token_renew_s: Annotated[float, about("how long a delegation token lives without renewal", gt=0)] = (
        86_400.0
    )
