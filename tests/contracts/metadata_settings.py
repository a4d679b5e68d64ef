"""What every metadata store must do for settings that are changed while agents run."""

import asyncio

from streamhouse.model.names import NodeId
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_scene import MetadataScene

ONE = NodeId(1)
OLD = {"log.retention.ms": "1000"}
NEW = {"log.retention.ms": "2000", "auto.create.topics.enable": "false"}


class SettingsContract(MetadataScene):
    async def test_nothing_was_changed_at_first(self, store: MetadataStore) -> None:
        assert await store.broker_settings() == {}

    async def test_changes_belong_to_one_node_or_to_every_agent(self, store: MetadataStore) -> None:
        assert await store.alter_broker_settings(None, expected={}, configs=OLD) == OLD
        assert await store.alter_broker_settings(ONE, expected={}, configs=NEW) == NEW
        assert await store.broker_settings() == {None: OLD, ONE: NEW}

    async def test_changed_settings_are_replaced_when_they_are_the_expected_ones(self, store: MetadataStore) -> None:
        await store.alter_broker_settings(None, expected={}, configs=OLD)
        assert await store.alter_broker_settings(None, expected=OLD, configs=NEW) == NEW
        assert await store.broker_settings() == {None: NEW}

    async def test_what_someone_changed_meanwhile_is_left_and_returned(self, store: MetadataStore) -> None:
        await store.alter_broker_settings(None, expected={}, configs=OLD)
        assert await store.alter_broker_settings(None, expected={}, configs=NEW) == OLD
        assert await store.broker_settings() == {None: OLD}

    async def test_repeating_a_change_of_settings_is_a_no_op(self, store: MetadataStore) -> None:
        for _ in range(2):
            assert await store.alter_broker_settings(ONE, expected={}, configs=NEW) == NEW
        assert await store.broker_settings() == {ONE: NEW}

    async def test_the_order_of_changed_settings_does_not_matter(self, store: MetadataStore) -> None:
        await store.alter_broker_settings(None, expected={}, configs=NEW)
        backwards = dict(reversed(NEW.items()))
        assert await store.alter_broker_settings(None, expected=backwards, configs=OLD) == OLD

    async def test_a_node_whose_changes_were_taken_back_has_none(self, store: MetadataStore) -> None:
        await store.alter_broker_settings(ONE, expected={}, configs=NEW)
        assert await store.alter_broker_settings(ONE, expected=NEW, configs={}) == {}
        assert await store.broker_settings() == {}

    async def test_of_sixteen_who_change_a_setting_each_none_is_lost(self, store: MetadataStore) -> None:
        async def add(name: str) -> None:
            seen: dict[str, str] = {}
            while name not in seen:
                seen = dict(await store.alter_broker_settings(None, expected=seen, configs={**seen, name: "1"}))

        names = [f"setting-{number}" for number in range(16)]
        await asyncio.gather(*map(add, names))
        assert await store.broker_settings() == {None: dict.fromkeys(names, "1")}
