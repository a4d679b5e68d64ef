// Security: who the caller is; users, keys, access rules, roles and quotas, for those who may see them.
import { html } from "../lib/html.js";
import { get } from "../lib/api.js";
import { useData } from "../lib/live.js";
import { href, useQuery } from "../lib/router.js";
import { Badge, Card, Failure, Notice, PageHead, Tabs } from "../ui/parts.js";
import { Keys, Users } from "./security_users.js";
import { Quotas, Roles, Rules } from "./security_rules.js";
import { Audit } from "./security_audit.js";

const TABS = [["me", "You"], ["users", "Users"], ["keys", "API keys"], ["acls", "Access rules"], ["roles", "Roles"], ["quotas", "Quotas"], ["audit", "Audit"]];
const VIEWS = { users: Users, keys: Keys, acls: Rules, roles: Roles, quotas: Quotas, audit: Audit };

const OFF = "Access control is off here: everybody who reaches this agent may do everything. The page on security in the documentation says how to turn it on.";
const isOff = (me, tab) => me.unrestricted && (tab === "acls" || tab === "roles");

export function Page() {
  const [tab] = useQuery("tab", "me");
  const me = useData((signal) => get("/v1/whoami", {}, { signal }));
  const View = VIEWS[tab];
  return html`<${PageHead} title="Security" about="Who may do what. Users, keys and rules are the same for Kafka, HTTP, the schema registry and gRPC." />
    <${Tabs} label="Parts of security" active=${tab} tabs=${TABS.map(([id, label]) => ({ id, label, href: href(["security"], { tab: id === "me" ? "" : id }) }))} />
    ${!me.data || !View ? html`<${Me} of=${me} />` : isOff(me.data, tab) ? html`<${Notice} kind="warn">${OFF}</${Notice}>` : html`<${View} me=${me.data} />`}`;
}

function Me({ of }) {
  if (of.error) return html`<${Failure} error=${of.error} />`;
  if (!of.data) return null;
  const me = of.data;
  return html`<${Card} title="You"><div class="stack">
    <dl class="pair"><dt>Principal</dt><dd><code>${me.principal}</code></dd><dt>Groups</dt><dd>${me.groups.join(", ") || "none"}</dd><dt>Address</dt><dd>${me.host}</dd><dt>Listener</dt><dd>${me.listener}</dd>
      <dt>Rights</dt><dd>${me.unrestricted ? html`<${Badge} kind="warn">everything</${Badge}>` : me.super_user ? "everything, as a super user" : "what the access rules allow"}</dd></dl>
    ${me.unrestricted && html`<${Notice} kind="warn">${OFF}</${Notice}>`}
  </div></${Card}>`;
}
