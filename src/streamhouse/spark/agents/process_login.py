"""Process login: how SQL workers and supervisors prove to agents that they belong to the cluster.

Data path   settings, environment -> **process_login** -> tokens in the headers of heartbeats
Owns        finding the cluster secret, and keeping it from the processes that this one starts
Leaves      tokens to `model.cluster_tokens`, what a process may do to the agents

The secret is read once and then removed from the environment, so that JVMs and the code of pipelines never see it.
"""

import os
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from streamhouse.client.credentials import Credentials
from streamhouse.clock import SystemClock
from streamhouse.config import Settings, load_settings
from streamhouse.config.secrets import CLUSTER_SECRET_FILE, ENVIRONMENT, FILE, read_secret
from streamhouse.model.access import Principal
from streamhouse.model.cluster_tokens import ClusterTokens

SETTING: Final = "security.cluster_secret"


def take_cluster_secret(environ: MutableMapping[str, str]) -> str:
    """The secret of `security.cluster_secret`, or of the agent with this data folder; empty: there is none."""
    settings = load_settings({}, environ)
    named = settings.security.cluster_secret or _own(settings)
    if not named:
        return ""
    secret = read_secret(named, environ, setting=SETTING)
    if named.startswith(ENVIRONMENT):
        environ.pop(named.removeprefix(ENVIRONMENT), None)
    return secret


def _own(settings: Settings) -> str:
    """The secret that the only agent of a data folder has generated, as no other was configured."""
    path = Path(settings.agent.data) / CLUSTER_SECRET_FILE
    return f"{FILE}{path}" if os.access(path, os.R_OK) else ""


def process_credentials(kind: str, name: str, secret: str) -> Credentials:
    """The login of this process: a token of its own for each request, else what the environment says."""
    own = Credentials.from_environment(os.environ)
    if not secret:
        return own
    make_token = partial(ClusterTokens(secret, clock=SystemClock()).make, Principal(kind, name))
    return replace(own, user="", password="", token="", make_token=make_token)
