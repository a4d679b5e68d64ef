"""What every metadata store must do for the schema registry."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streamhouse.errors import (
    ModeRefused,
    ReferenceExists,
    SchemaIdTaken,
    SchemaLimit,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    UnknownSubject,
    UnknownVersion,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.schema import (
    DEFAULT_CONTEXT,
    GLOBAL_CONTEXT,
    Deleted,
    Mode,
    NewVersion,
    Reference,
    RegisteredSchema,
    Rules,
    Subject,
    VersionKey,
)
from streamhouse.stores.metadata.base import MetadataStore
from tests.contracts.metadata_changes import listening
from tests.contracts.metadata_scene import MetadataScene

ORDERS_VALUE = Subject(DEFAULT_CONTEXT, "orders-value")
CLICKS_VALUE = Subject(DEFAULT_CONTEXT, "clicks-value")
STAGED = Subject(".staging", "orders-value")
EVERYWHERE = Subject(GLOBAL_CONTEXT, "")
ROOM = 1000


def new(
    text: str, subject: Subject = ORDERS_VALUE, *, revision: int = 0, needs: Sequence[VersionKey] = ()
) -> NewVersion:
    references = tuple(Reference(f"ref{n}", str(key.subject), key.version) for n, key in enumerate(needs))
    return NewVersion(
        subject=subject,
        revision=revision,
        guid=f"guid of {text}",
        type="AVRO",
        text=text,
        references=references,
        needs=tuple(needs),
    )


async def add(store: MetadataStore, version: NewVersion) -> RegisteredSchema:
    """Give the subject this version, whatever its revision is now."""
    state = await store.subject_state(version.subject)
    added = await store.add_version(replace(version, revision=state.revision), max_subjects=ROOM)
    assert added is not None
    return added


async def numbers(store: MetadataStore, subject: Subject) -> list[tuple[int, int, bool]]:
    state = await store.subject_state(subject)
    return [(each.version, each.schema_id, each.deleted) for each in state.versions]


async def all_subjects(store: MetadataStore, deleted: Deleted = Deleted.WITHOUT) -> list[str]:
    result = await store.list_subjects(None, "", deleted=deleted, skipped=0, limit=100)
    return [str(each) for each in result]


class SchemaContract(MetadataScene):
    async def test_a_new_subject_has_neither_versions_nor_rules(self, store: MetadataStore) -> None:
        state = await store.subject_state(ORDERS_VALUE)
        assert (state.revision, state.last_version, state.versions) == (0, 0, ())
        assert state.rules == (Rules(), Rules(), Rules())

    async def test_ids_and_versions_are_given_without_gaps(self, store: MetadataStore) -> None:
        added = [await add(store, new(f"schema {n}")) for n in range(4)]
        assert [(each.version, each.schema_id) for each in added] == [(1, 1), (2, 2), (3, 3), (4, 4)]
        assert await store.schema_contexts() == {DEFAULT_CONTEXT: 4}

    async def test_all_of_a_schema_comes_back(self, store: MetadataStore) -> None:
        base = await add(store, new("base", CLICKS_VALUE))
        whole = replace(
            new("text", needs=[VersionKey(CLICKS_VALUE, 1)]), metadata='{"tags": {}}', rule_set='{"domainRules": []}'
        )
        added = await add(store, whole)
        result = await store.schema_of_id(DEFAULT_CONTEXT, added.schema_id)
        assert result == added.schema
        assert (result.text, result.type, result.guid) == ("text", "AVRO", "guid of text")
        assert result.references == (Reference("ref0", "clicks-value", 1),)
        assert (result.metadata, result.rule_set) == ('{"tags": {}}', '{"domainRules": []}')
        keys = [VersionKey(ORDERS_VALUE, 1), VersionKey(CLICKS_VALUE, 1), VersionKey(CLICKS_VALUE, 9)]
        assert await store.schema_versions(keys) == [base, added]
        assert await store.latest_version(ORDERS_VALUE) == added

    async def test_the_same_schema_has_one_id_in_its_context_and_another_in_another(self, store: MetadataStore) -> None:
        await add(store, new("other"))
        first = await add(store, new("same"))
        second = await add(store, new("same", CLICKS_VALUE))
        elsewhere = await add(store, new("same", STAGED))
        assert (first.schema_id, second.schema_id, elsewhere.schema_id) == (2, 2, 1)
        assert await store.ids_of_guid("guid of same") == [(DEFAULT_CONTEXT, 2), (".staging", 1)]
        result = await store.versions_of_schema(DEFAULT_CONTEXT, 2)
        assert [each.key for each in result] == [VersionKey(CLICKS_VALUE, 1), VersionKey(ORDERS_VALUE, 2)]

    async def test_a_decision_by_an_old_revision_changes_nothing(self, store: MetadataStore) -> None:
        await add(store, new("first"))
        assert await store.add_version(new("second", revision=0), max_subjects=ROOM) is None
        assert await numbers(store, ORDERS_VALUE) == [(1, 1, False)]
        assert await store.schema_contexts() == {DEFAULT_CONTEXT: 1}

    async def test_every_change_of_versions_makes_another_revision(self, store: MetadataStore) -> None:
        seen = {0}
        for change in (
            lambda: add(store, new("a")),
            lambda: add(store, new("b")),
            lambda: store.delete_version(ORDERS_VALUE, 1, permanent=False),
            lambda: store.delete_version(ORDERS_VALUE, 1, permanent=True),
            lambda: store.delete_subject(ORDERS_VALUE, permanent=False),
        ):
            await change()
            seen.add((await store.subject_state(ORDERS_VALUE)).revision)
        assert len(seen) == 6
        await store.delete_subject(ORDERS_VALUE, permanent=True)
        await add(store, new("a"))
        assert (await store.subject_state(ORDERS_VALUE)).revision not in seen

    async def test_sixteen_who_register_the_same_schema_get_the_same_id(self, store: MetadataStore) -> None:
        async def register(number: int) -> int:
            return (await add(store, new("same", Subject(DEFAULT_CONTEXT, f"subject-{number}")))).schema_id

        assert set(await asyncio.gather(*map(register, range(16)))) == {1}
        assert await store.schema_contexts() == {DEFAULT_CONTEXT: 1}

    async def test_of_sixteen_who_decide_at_once_one_wins_and_ids_stay_dense(self, store: MetadataStore) -> None:
        tries = await asyncio.gather(*(store.add_version(new(f"{n}"), max_subjects=ROOM) for n in range(16)))
        assert [each.schema_id for each in tries if each is not None] == [1]
        assert await numbers(store, ORDERS_VALUE) == [(1, 1, False)]
        assert (await add(store, new("next"))).schema_id == 2

    async def test_there_is_a_limit_of_subjects(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        with pytest.raises(SchemaLimit):
            await store.add_version(new("b", CLICKS_VALUE), max_subjects=1)
        assert await all_subjects(store) == ["orders-value"]

    # --- deleting

    async def test_a_deleted_version_can_be_read_until_it_is_deleted_for_good(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        await add(store, new("b"))
        assert await store.delete_version(ORDERS_VALUE, None, permanent=False) == 2
        assert await numbers(store, ORDERS_VALUE) == [(1, 1, False), (2, 2, True)]
        latest = await store.latest_version(ORDERS_VALUE)
        assert latest is not None
        assert latest.version == 1
        assert await store.schema_of_id(DEFAULT_CONTEXT, 2) is not None
        assert await store.delete_version(ORDERS_VALUE, 2, permanent=True) == 2
        assert await numbers(store, ORDERS_VALUE) == [(1, 1, False)]
        assert await store.schema_of_id(DEFAULT_CONTEXT, 2) is None

    async def test_an_id_stays_while_another_subject_has_it(self, store: MetadataStore) -> None:
        await add(store, new("same"))
        await add(store, new("same", CLICKS_VALUE))
        await store.delete_subject(ORDERS_VALUE, permanent=False)
        await store.delete_subject(ORDERS_VALUE, permanent=True)
        assert await store.schema_of_id(DEFAULT_CONTEXT, 1) is not None

    async def test_neither_ids_nor_versions_that_were_deleted_come_back(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        await add(store, new("b"))
        await store.delete_version(ORDERS_VALUE, 2, permanent=False)
        await store.delete_version(ORDERS_VALUE, 2, permanent=True)
        again = await add(store, new("b"))
        assert (again.version, again.schema_id) == (3, 3)

    async def test_a_schema_that_comes_back_takes_its_id_and_a_new_version(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        await add(store, new("b"))
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        again = await add(store, new("a"))
        assert (again.version, again.schema_id) == (3, 1)
        assert await numbers(store, ORDERS_VALUE) == [(2, 2, False), (3, 1, False)]

    async def test_a_deleted_version_that_others_need_stays_when_its_schema_comes_back(
        self, store: MetadataStore
    ) -> None:
        await add(store, new("base"))
        await add(store, new("user", CLICKS_VALUE, needs=[VersionKey(ORDERS_VALUE, 1)]))
        await store.delete_subject(CLICKS_VALUE, permanent=False)
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        await add(store, new("base"))
        assert await numbers(store, ORDERS_VALUE) == [(1, 1, True), (2, 1, False)]

    async def test_versions_are_deleted_in_order(self, store: MetadataStore) -> None:
        with pytest.raises(UnknownSubject):
            await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        await add(store, new("a"))
        with pytest.raises(UnknownVersion):
            await store.delete_version(ORDERS_VALUE, 2, permanent=False)
        with pytest.raises(VersionNotSoftDeleted):
            await store.delete_version(ORDERS_VALUE, 1, permanent=True)
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        with pytest.raises(VersionSoftDeleted):
            await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        with pytest.raises(UnknownVersion):
            await store.delete_version(ORDERS_VALUE, None, permanent=False)

    async def test_subjects_are_deleted_in_order(self, store: MetadataStore) -> None:
        with pytest.raises(UnknownSubject):
            await store.delete_subject(ORDERS_VALUE, permanent=False)
        for text in "abc":
            await add(store, new(text))
        await store.delete_version(ORDERS_VALUE, 2, permanent=False)
        with pytest.raises(SubjectNotSoftDeleted):
            await store.delete_subject(ORDERS_VALUE, permanent=True)
        assert await store.delete_subject(ORDERS_VALUE, permanent=False) == [1, 3]
        with pytest.raises(SubjectSoftDeleted):
            await store.delete_subject(ORDERS_VALUE, permanent=False)
        assert await all_subjects(store, Deleted.ONLY) == ["orders-value"]
        assert await store.delete_subject(ORDERS_VALUE, permanent=True) == [1, 2, 3]
        assert await all_subjects(store, Deleted.WITH) == []
        again = await add(store, new("d"))
        assert (again.version, again.schema_id) == (1, 4)

    async def test_what_others_need_is_not_deleted(self, store: MetadataStore) -> None:
        base = VersionKey(ORDERS_VALUE, 1)
        await add(store, new("base"))
        await add(store, new("user", CLICKS_VALUE, needs=[base]))
        assert [each.subject for each in await store.referrers(base)] == [CLICKS_VALUE]
        with pytest.raises(ReferenceExists):
            await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        with pytest.raises(ReferenceExists):
            await store.delete_subject(ORDERS_VALUE, permanent=False)
        await store.delete_subject(CLICKS_VALUE, permanent=False)
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        with pytest.raises(ReferenceExists):
            await store.delete_version(ORDERS_VALUE, 1, permanent=True)
        await store.delete_subject(CLICKS_VALUE, permanent=True)
        await store.delete_version(ORDERS_VALUE, 1, permanent=True)

    async def test_a_subject_whose_versions_need_each_other_is_deleted_whole(self, store: MetadataStore) -> None:
        await add(store, new("base"))
        await add(store, new("user", needs=[VersionKey(ORDERS_VALUE, 1)]))
        assert await store.delete_subject(ORDERS_VALUE, permanent=False) == [1, 2]
        assert await store.delete_subject(ORDERS_VALUE, permanent=True) == [1, 2]

    async def test_a_schema_whose_needs_are_gone_is_not_added(self, store: MetadataStore) -> None:
        user = new("user", CLICKS_VALUE, needs=[VersionKey(ORDERS_VALUE, 1)])
        assert await store.add_version(user, max_subjects=ROOM) is None
        await add(store, new("base"))
        await store.delete_subject(ORDERS_VALUE, permanent=False)
        assert await store.add_version(user, max_subjects=ROOM) is None
        assert await all_subjects(store) == []

    async def test_of_who_needs_a_version_and_who_deletes_it_one_wins(self, store: MetadataStore) -> None:
        for number in range(8):
            base = VersionKey(Subject(DEFAULT_CONTEXT, f"base-{number}"), 1)
            await add(store, new(f"base {number}", base.subject))
            user = new(f"user {number}", Subject(DEFAULT_CONTEXT, f"user-{number}"), needs=[base])
            added, deleted = await asyncio.gather(
                store.add_version(user, max_subjects=ROOM),
                store.delete_version(base.subject, 1, permanent=False),
                return_exceptions=True,
            )
            assert isinstance(deleted, ReferenceExists) == (added is not None)

    async def test_deletions_are_heard_and_new_versions_are_not(self, store: MetadataStore) -> None:
        ear = await listening(store)
        await add(store, new("a"))
        await store.change_config(ORDERS_VALUE, {"compatibilityLevel": "NONE"})
        assert await ear.since_last() == []
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        assert await ear.since_last() == [Change(ChangeKind.SCHEMAS)]
        await store.delete_subject(ORDERS_VALUE, permanent=True)
        assert await ear.since_last() == [Change(ChangeKind.SCHEMAS)]

    # --- what comes from another registry

    async def test_an_imported_version_keeps_its_numbers(self, store: MetadataStore) -> None:
        added = await add(store, replace(new("a"), schema_id=77, version=5))
        assert (added.schema_id, added.version) == (77, 5)
        after = await add(store, new("b"))
        assert (after.schema_id, after.version) == (78, 6)

    async def test_an_id_or_a_version_that_is_taken_is_not_imported(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        with pytest.raises(SchemaIdTaken):
            await add(store, replace(new("b", CLICKS_VALUE), schema_id=1))
        with pytest.raises(SchemaIdTaken):
            await add(store, replace(new("b"), schema_id=9, version=1))
        assert await store.schema_contexts() == {DEFAULT_CONTEXT: 1}

    # --- listing

    async def test_subjects_are_listed_by_context_and_first_letters(self, store: MetadataStore) -> None:
        for subject in (ORDERS_VALUE, CLICKS_VALUE, STAGED, Subject(DEFAULT_CONTEXT, "orders%-value")):
            await add(store, new("a", subject))
        assert await all_subjects(store) == ["clicks-value", "orders%-value", "orders-value", ":.staging:orders-value"]

        async def listed(context: str | None, prefix: str, skipped: int = 0, limit: int = 100) -> list[str]:
            result = await store.list_subjects(context, prefix, deleted=Deleted.WITHOUT, skipped=skipped, limit=limit)
            return [str(each) for each in result]

        assert await listed(DEFAULT_CONTEXT, "orders") == ["orders%-value", "orders-value"]
        assert await listed(DEFAULT_CONTEXT, "orders%") == ["orders%-value"]
        assert await listed(".staging", "") == [":.staging:orders-value"]
        assert await listed(None, "orders-") == ["orders-value", ":.staging:orders-value"]
        assert await listed(None, "", skipped=1, limit=2) == ["orders%-value", "orders-value"]

    async def test_subjects_are_listed_by_what_is_deleted(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        await add(store, new("a", CLICKS_VALUE))
        await add(store, new("b", CLICKS_VALUE))
        await store.delete_subject(ORDERS_VALUE, permanent=False)
        await store.delete_version(CLICKS_VALUE, 1, permanent=False)
        assert await all_subjects(store) == ["clicks-value"]
        assert await all_subjects(store, Deleted.WITH) == ["clicks-value", "orders-value"]
        assert await all_subjects(store, Deleted.ONLY) == ["orders-value"]

    async def test_versions_are_listed_all_or_the_latest_alone(self, store: MetadataStore) -> None:
        for text in "abc":
            await add(store, new(text))
        await add(store, new("a", STAGED))
        await store.delete_version(ORDERS_VALUE, 3, permanent=False)

        async def listed(with_deleted: bool, latest_only: bool) -> list[tuple[str, int]]:
            result = await store.list_versions(
                None, "", with_deleted=with_deleted, latest_only=latest_only, skipped=0, limit=9
            )
            return [(each.subject.context, each.version) for each in result]

        assert await listed(False, False) == [(".", 1), (".", 2), (".staging", 1)]
        assert await listed(True, False) == [(".", 1), (".", 2), (".", 3), (".staging", 1)]
        assert await listed(False, True) == [(".", 2), (".staging", 1)]
        assert await listed(True, True) == [(".", 3), (".staging", 1)]

    # --- rules

    async def test_a_configuration_is_changed_name_by_name(self, store: MetadataStore) -> None:
        assert await store.change_config(ORDERS_VALUE, {"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
        assert await store.change_config(ORDERS_VALUE, {"b": None, "c": True}) == {"a": 1, "c": True}
        [rules] = await store.schema_rules([ORDERS_VALUE])
        assert rules == Rules(config='{"a": 1, "c": true}')
        await store.drop_config(ORDERS_VALUE)
        assert await store.schema_rules([ORDERS_VALUE]) == [Rules()]

    async def test_the_rules_of_all_scopes_come_with_a_subject(self, store: MetadataStore) -> None:
        await store.change_config(STAGED, {"n": 1})
        await store.set_mode(Subject(".staging", ""), Mode.READONLY)
        await store.set_mode(EVERYWHERE, Mode.READONLY_OVERRIDE)
        rules = (await store.subject_state(STAGED)).rules
        assert rules == (Rules(config='{"n": 1}'), Rules(mode=Mode.READONLY), Rules(mode=Mode.READONLY_OVERRIDE))

    async def test_the_rules_of_a_subject_go_with_its_last_version(self, store: MetadataStore) -> None:
        await add(store, new("a"))
        await store.set_mode(ORDERS_VALUE, Mode.READWRITE)
        await store.change_config(ORDERS_VALUE, {"n": 1})
        await store.delete_version(ORDERS_VALUE, 1, permanent=False)
        assert (await store.schema_rules([ORDERS_VALUE]))[0].config is not None
        await store.delete_version(ORDERS_VALUE, 1, permanent=True)
        assert await store.schema_rules([ORDERS_VALUE]) == [Rules()]

    async def test_only_an_empty_scope_is_made_ready_for_imports(self, store: MetadataStore) -> None:
        context = Subject(DEFAULT_CONTEXT, "")
        await add(store, new("a"))
        for scope in (ORDERS_VALUE, context, EVERYWHERE):
            with pytest.raises(ModeRefused):
                await store.set_mode(scope, Mode.IMPORT, must_be_empty=True)
        assert await store.schema_rules([ORDERS_VALUE, context]) == [Rules(), Rules()]
        await store.delete_subject(ORDERS_VALUE, permanent=False)
        await store.set_mode(context, Mode.IMPORT, must_be_empty=True)
        assert await all_subjects(store, Deleted.WITH) == []
        assert await store.schema_rules([context]) == [Rules(mode=Mode.IMPORT)]

    async def test_modes_of_a_contexts_subjects_go_together(self, store: MetadataStore) -> None:
        await store.set_mode(ORDERS_VALUE, Mode.READONLY)
        await store.set_mode(Subject(DEFAULT_CONTEXT, ""), Mode.READONLY)
        await store.set_mode(STAGED, Mode.READONLY)
        await store.drop_modes(DEFAULT_CONTEXT)
        result = await store.schema_rules([ORDERS_VALUE, Subject(DEFAULT_CONTEXT, ""), STAGED])
        assert [each.mode for each in result] == [None, Mode.READONLY, Mode.READONLY]
