"""What every metadata store must do for users, keys, access rules, roles, quotas and delegation tokens."""

import asyncio
from dataclasses import replace

import pytest

from streamhouse.errors import SecurityLimit, UnknownUser, UserExists
from streamhouse.model.access import (
    USER,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from streamhouse.model.credentials import ApiKey, DelegationToken
from streamhouse.model.quota import Quota, QuotaEntity
from streamhouse.model.scram import ScramCredential, ScramMechanism
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import MetadataScene

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
READ = Acl(resource_type=ResourceType.TOPIC, name="orders", principal=ALICE, operation=Operation.READ)
PREFIXED = Acl(
    resource_type=ResourceType.TOPIC,
    name="orders",
    pattern=PatternType.PREFIXED,
    principal=BOB,
    host="10.0.0.0/8",
    operation=Operation.ALL,
    permission=Permission.DENY,
)
SHA_256 = ScramCredential(
    mechanism=ScramMechanism.SHA_256, salt=b"salt", iterations=4096, stored_key=b"\x00stored", server_key=b"\xffserver"
)
SHA_512 = ScramCredential(
    mechanism=ScramMechanism.SHA_512, salt=b"pepper", iterations=8192, stored_key=b"s", server_key=b"k"
)
KEY = ApiKey(key_id="k1", principal=ALICE, secret_hash=b"\x01hash", description="laptop", created_at_ms=5)
TOKEN = DelegationToken(
    token_id="t1", owner=ALICE, requester=BOB, renewers=(BOB,), issued_at_ms=1, expires_at_ms=2**62, max_at_ms=2**62
)


class SecurityContract(MetadataScene):
    async def test_access_rules_are_kept_once(self, store: MetadataStore) -> None:
        for _ in range(2):
            await store.add_acls([READ, PREFIXED], max_acls=2)
        assert set(await store.acls()) == {READ, PREFIXED}

    async def test_too_many_access_rules_are_refused_all_together(self, store: MetadataStore) -> None:
        with pytest.raises(SecurityLimit, match=r"security\.max_acls"):
            await store.add_acls([READ, PREFIXED], max_acls=1)
        assert await store.acls() == []

    async def test_each_filter_deletes_the_rules_that_it_selects(self, store: MetadataStore) -> None:
        await store.add_acls([READ, PREFIXED], max_acls=10)
        applying = AclFilter(resource_type=ResourceType.TOPIC, name="orders-7", matching=True)
        nobody = AclFilter(principal=Principal(USER, "carol"))
        assert await store.delete_acls([applying, nobody]) == [[PREFIXED], []]
        assert await store.acls() == [READ]

    async def test_a_user_has_a_credential_for_each_mechanism(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256, SHA_512], is_new=True, max_users=10)
        user = await store.find_user("alice")
        assert user is not None
        assert dict(user.credentials) == {ScramMechanism.SHA_256: SHA_256, ScramMechanism.SHA_512: SHA_512}
        assert await store.find_user("bob") is None

    async def test_lists_of_users_have_no_keys(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256], max_users=10)
        [listed] = await store.users()
        assert listed.name == "alice"
        assert listed.credentials[ScramMechanism.SHA_256].iterations == 4096
        assert listed.credentials[ScramMechanism.SHA_256].stored_key == b""

    async def test_a_new_user_takes_no_name_that_is_there(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256], is_new=True, max_users=10)
        with pytest.raises(UserExists):
            await store.put_credentials("alice", upserts=[SHA_512], is_new=True, max_users=10)
        user = await store.find_user("alice")
        assert user is not None
        assert list(user.credentials) == [ScramMechanism.SHA_256]

    async def test_of_eight_who_create_one_user_one_succeeds(self, store: MetadataStore) -> None:
        async def create() -> bool:
            try:
                await store.put_credentials("alice", upserts=[SHA_256], is_new=True, max_users=10)
            except UserExists:
                return False
            return True

        assert sum(await asyncio.gather(*(create() for _ in range(8)))) == 1

    async def test_a_user_goes_with_the_last_credential(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256, SHA_512], max_users=10)
        await store.put_credentials("alice", deletions=[ScramMechanism.SHA_256], max_users=10)
        with pytest.raises(UnknownUser):
            await store.put_credentials("alice", deletions=[ScramMechanism.SHA_256], max_users=10)
        await store.put_credentials("alice", deletions=[ScramMechanism.SHA_512], max_users=10)
        assert await store.find_user("alice") is None

    async def test_there_are_not_more_users_than_allowed(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256], max_users=1)
        await store.put_credentials("alice", upserts=[SHA_512], max_users=1)
        with pytest.raises(SecurityLimit):
            await store.put_credentials("bob", upserts=[SHA_256], max_users=1)
        assert [user.name for user in await store.users()] == ["alice"]

    async def test_a_deleted_user_leaves_no_key_no_delegation_token_and_no_role(self, store: MetadataStore) -> None:
        await store.put_credentials("alice", upserts=[SHA_256], max_users=10)
        await store.add_key(KEY, max_keys=10)
        others = replace(TOKEN, token_id="t2", owner=BOB)
        for token in (replace(TOKEN, owner=ALICE), others):
            await store.put_delegation_token(token, max_tokens=10)
        await store.change_role("readers", added=[ALICE, BOB])
        assert await store.delete_user("alice")
        assert not await store.delete_user("alice")
        assert (await store.find_user("alice"), await store.keys()) == (None, [])
        assert await store.delegation_tokens() == [others]
        assert await store.role_members() == {"readers": [BOB]}

    async def test_a_key_is_found_with_its_hash_and_listed_without(self, store: MetadataStore) -> None:
        for _ in range(2):
            await store.add_key(KEY, max_keys=1)
        assert await store.find_key("k1") == KEY
        assert [(key.key_id, key.secret_hash) for key in await store.keys()] == [("k1", b"")]
        assert await store.delete_key("k1")
        assert not await store.delete_key("k1")

    async def test_roles_have_members(self, store: MetadataStore) -> None:
        await store.change_role("readers", added=[ALICE, BOB])
        await store.change_role("readers", added=[BOB], removed=[ALICE])
        assert await store.role_members() == {"readers": [BOB]}

    async def test_an_entity_without_limits_has_no_quota(self, store: MetadataStore) -> None:
        quota = Quota(entity=QuotaEntity(user="alice", client_id="<default>"), limits={"producer_byte_rate": 1.5e6})
        await store.put_quota(quota, max_quotas=1)
        assert await store.quotas() == [quota]
        with pytest.raises(SecurityLimit, match="max_quotas"):
            await store.put_quota(Quota(entity=QuotaEntity(user="bob"), limits=quota.limits), max_quotas=1)
        await store.put_quota(Quota(entity=quota.entity), max_quotas=1)
        assert await store.quotas() == []

    async def test_agents_hear_what_others_have_granted_lately(self, store: MetadataStore) -> None:
        assert await store.exchange_quota_usage("a", {"x": 1.5}, ttl_ms=3_600_000) == []
        assert await store.exchange_quota_usage("b", {"x": 2.0}, ttl_ms=3_600_000) == [{"x": 1.5}]
        assert await store.exchange_quota_usage("a", {}, ttl_ms=3_600_000) == [{"x": 2.0}]

    async def test_a_delegation_token_ends_when_it_expires_or_is_deleted(self, store: MetadataStore) -> None:
        await store.put_delegation_token(TOKEN, max_tokens=10)
        assert await store.delegation_tokens() == [TOKEN]
        assert await store.find_delegation_token("t1") == TOKEN
        assert await store.prolong_delegation_token("t1", TOKEN.expires_at_ms + 1)
        assert await store.find_delegation_token("t1") == replace(TOKEN, expires_at_ms=TOKEN.expires_at_ms + 1)
        assert await store.delete_delegation_token("t1")
        assert not await store.prolong_delegation_token("t1", TOKEN.expires_at_ms + 2)
        assert await store.delegation_tokens() == []
