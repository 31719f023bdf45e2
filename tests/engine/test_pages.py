"""Whole pages of equal beginnings are shared, and the counts of holders are always right."""

from __future__ import annotations

from woolly.engine import Sequence
from woolly.engine.cache.names import page_names
from woolly.engine.cache.pages import Pages
from woolly.engine.features import Features
from woolly.request import SubmitOptions


def a_sequence(tokens: list[int], *, salt: bytes = b"") -> Sequence:
    return Sequence(tokens, limit=len(tokens) + 8, options=SubmitOptions(salt))


def computed(pages: Pages, tokens: list[int], *, salt: bytes = b"") -> Sequence:
    """A sequence that has gone through the engine as far as its last token."""
    sequence = a_sequence(tokens, salt=salt)
    assert pages.admit(sequence, spare=0)
    assert pages.grow(sequence, len(tokens))
    sequence.computed = len(tokens)
    pages.computed(sequence)
    return sequence


def shared(pages: Pages, tokens: list[int], *, salt: bytes = b"") -> int:
    return pages.match(a_sequence(tokens, salt=salt))


def test_whole_pages_are_remembered_and_the_partial_last_one_is_not() -> None:
    pages = Pages([8], 4)
    pages.release(computed(pages, list(range(10))))
    [group] = pages.groups
    assert len(group.pages) == len(group.idle) == 2
    assert len(group.free) == 6


def test_an_equal_beginning_is_found_as_far_as_it_is_equal() -> None:
    pages = Pages([8], 4)
    pages.release(computed(pages, list(range(16))))
    assert shared(pages, list(range(20))) == 4
    assert shared(pages, [0, 1, 2, 3, 4, 5, 6, 99, 8, 9, 10, 11, 12]) == 1
    assert shared(pages, [1, 2, 3, 4, 5]) == 0
    assert shared(pages, [4, 5, 6, 7, 8]) == 0  # the same tokens at another place are another page


def test_the_last_token_is_always_left_to_compute() -> None:
    pages = Pages([8], 4)
    pages.release(computed(pages, list(range(16))))
    assert shared(pages, list(range(16))) == 3
    assert shared(pages, list(range(17))) == 4


def test_a_page_of_another_salt_is_never_shared() -> None:
    pages = Pages([8], 4)
    pages.release(computed(pages, list(range(16)), salt=b"one"))
    assert shared(pages, list(range(16)), salt=b"two") == 0
    assert shared(pages, list(range(16)), salt=b"one") == 3


def test_a_running_sequence_shares_its_pages_too() -> None:
    pages = Pages([8], 4)
    first = computed(pages, list(range(9)))
    second = a_sequence(list(range(9)))
    assert pages.admit(second, spare=0)
    assert second.computed == 8
    assert first.table is not None and second.table is not None
    assert second.table[0, :2].tolist() == first.table[0, :2].tolist()
    [group] = pages.groups
    assert [group.holders[page] for page in first.table[0, :3]] == [2, 2, 1]
    pages.release(first)
    assert [group.holders[page] for page in second.table[0, :2]] == [1, 1]
    assert not group.idle


def test_two_that_compute_the_same_at_once_keep_their_own_pages() -> None:
    pages = Pages([8], 4)
    first, second = a_sequence(list(range(5))), a_sequence(list(range(5)))
    for sequence in (first, second):
        assert pages.admit(sequence, spare=0) and pages.grow(sequence, 5)
    for sequence in (first, second):
        sequence.computed = 5
        pages.computed(sequence)
    [group] = pages.groups
    assert len(group.pages) == 1
    assert first.table is not None and second.table is not None and first.table[0, 0] != second.table[0, 0]
    pages.release(second)
    assert len(group.free) == 6  # nobody can ask for the second copy, so it is free
    pages.release(first)
    assert len(group.idle) == 1


def test_the_page_used_longest_ago_is_forgotten_first_and_ends_before_beginnings() -> None:
    pages = Pages([4], 4)
    pages.release(computed(pages, list(range(8))))  # pages A0, A1
    pages.release(computed(pages, list(range(50, 58))))  # pages B0, B1
    one = a_sequence([90])
    assert pages.admit(one, spare=0) and pages.grow(one, 4)  # takes A1
    assert shared(pages, list(range(9))) == 1
    assert shared(pages, list(range(50, 59))) == 2
    assert pages.grow(one, 8)  # takes A0
    assert shared(pages, list(range(9))) == 0
    assert shared(pages, list(range(50, 59))) == 2


def test_use_makes_a_page_young_again() -> None:
    pages = Pages([4], 4)
    pages.release(computed(pages, list(range(5))))
    pages.release(computed(pages, list(range(50, 55))))
    again = a_sequence(list(range(5)))
    assert pages.admit(again, spare=0)
    pages.release(again)
    one = a_sequence([90])
    assert pages.admit(one, spare=0) and pages.grow(one, 12)
    assert shared(pages, list(range(5))) == 1
    assert shared(pages, list(range(50, 55))) == 0


def test_too_few_pages_take_nothing() -> None:
    pages = Pages([3], 4)
    one, other = a_sequence([1] * 8), a_sequence([2] * 8)
    assert pages.admit(one, spare=0) and pages.grow(one, 8)
    assert not pages.grow(other, 8)
    assert other.page_count == 0 and len(pages.groups[0].free) == 1
    assert not pages.admit(other, spare=0)


def test_a_spare_page_is_left_for_those_that_run() -> None:
    pages = Pages([3], 4)
    assert not pages.admit(a_sequence([1] * 8), spare=2)
    assert pages.admit(a_sequence([1] * 8), spare=1)


def test_what_a_sequence_will_share_does_not_count_as_free() -> None:
    pages = Pages([3], 4)
    pages.release(computed(pages, list(range(8))))  # two idle pages, one free
    assert pages.admit(a_sequence(list(range(12))), spare=0)  # shares two, needs one
    assert not pages.admit(a_sequence(list(range(20))), spare=0)


def windowed(counts: list[int], window: int, tokens: int) -> tuple[Pages, Sequence]:
    """A sequence that has gone through a model with layers of all positions and of a window, a page at a time."""
    pages = Pages(counts, 4, windows=[0, window])
    sequence = Sequence(range(tokens), limit=tokens + 8)
    assert pages.admit(sequence, spare=0)
    for end in range(4, tokens + 1, 4):
        assert pages.grow(sequence, end)
        sequence.computed = end
        pages.computed(sequence)
    return pages, sequence


def test_pages_behind_a_window_are_let_go_and_stay_remembered() -> None:
    pages, sequence = windowed([10, 4], 6, 40)
    everything, window = pages.groups
    assert [sum(group.holders) for group in pages.groups] == [10, 2]  # the next row sees positions 35 to 40
    assert sequence.begins == [0, 8]
    assert len(window.idle) == 2 and not everything.idle
    pages.release(sequence)
    assert [group.available for group in pages.groups] == [10, 4]


def test_a_prefix_is_reused_only_where_every_page_of_the_window_is_remembered() -> None:
    pages, sequence = windowed([12, 4], 6, 40)
    pages.release(sequence)
    assert pages.match(Sequence(range(44), limit=50)) == 10  # the window's last pages are there
    assert pages.match(Sequence(range(20), limit=50)) == 0  # the pages that position 16 sees were forgotten
    again = Sequence(range(44), limit=50)
    assert pages.admit(again, spare=0)
    assert again.computed == 40 and again.begins == [0, 8] and again.page_count == 10


def carrying(pages: Pages, sequence: Sequence) -> int:
    """Compute a sequence to its end; returns the position at which computing began."""
    assert pages.admit(sequence, spare=0)
    begun = sequence.computed
    while sequence.computed < len(sequence.tokens):
        end = min(len(sequence.tokens), pages.reach(sequence))
        assert pages.grow(sequence, end)
        sequence.computed = end
        pages.computed(sequence)
    return begun


def test_a_carried_state_is_kept_at_multiples_and_at_the_last_page_of_a_prompt() -> None:
    pages = Pages([40], 4, slots=2, snapshots=4)
    pages.snapshot_every = 8
    first = Sequence(range(23), limit=30)
    assert carrying(pages, first) == 0
    assert pages.snapshots.copies == [(first.slot, slot) for slot in (5, 4, 3)]  # taken at positions 8, 16 and 20
    pages.snapshots.done()
    second = Sequence([*range(22), 99, 98], limit=30)
    assert carrying(pages, second) == 20
    assert pages.snapshots.copies[0] == (3, second.slot)
    other = Sequence([*range(15), 99, 98], limit=30)
    pages.release(first)
    assert carrying(pages, other) == 8


def test_the_snapshot_used_longest_ago_is_forgotten_first() -> None:
    pages = Pages([60], 4, slots=1, snapshots=2)
    texts = [[number, *range(9)] for number in range(3)]
    for tokens in texts[:2]:
        sequence = Sequence(tokens, limit=12)
        assert carrying(pages, sequence) == 0
        pages.release(sequence)
    for tokens, begun in ((texts[0], 8), (texts[2], 0), (texts[0], 8), (texts[1], 0)):
        sequence = Sequence(tokens, limit=12)
        assert carrying(pages, sequence) == begun
        pages.release(sequence)


def test_what_a_failed_step_was_to_copy_is_forgotten() -> None:
    pages = Pages([60], 4, slots=1, snapshots=2)
    sequence = Sequence(range(10), limit=12)
    carrying(pages, sequence)
    pages.snapshots.lost()
    pages.release(sequence)
    assert pages.match(Sequence(range(10), limit=12)) == 0 and pages.snapshots.count == 2


def test_a_carried_state_has_a_slot_of_its_own_and_begins_with_nothing() -> None:
    pages = Pages([8], 4, slots=2)
    first, second, third = (Sequence(range(9), limit=12) for _ in range(3))
    for sequence in (first, second):
        assert pages.admit(sequence, spare=0) and pages.grow(sequence, 9)
        sequence.computed = 9
        pages.computed(sequence)
    assert {first.slot, second.slot} == {0, 1}
    pages.release(first)
    assert first.slot == -1
    assert pages.admit(third, spare=0) and third.computed == 0


def protected(pages: Pages, tokens: list[int], seconds: float = 60.0) -> None:
    sequence = computed(pages, tokens)
    sequence.options = SubmitOptions(protect_s=seconds)
    pages.release(sequence)


def test_protected_pages_are_forgotten_after_all_others_but_never_keep_anybody_out() -> None:
    pages = Pages([8], 4)
    protected(pages, list(range(8)))
    pages.release(computed(pages, list(range(100, 116))))
    newcomer = computed(pages, list(range(200, 224)))  # six of eight pages: two free, four unprotected
    assert shared(pages, list(range(9))) == 2
    assert shared(pages, list(range(100, 117))) == 0
    pages.release(newcomer)
    computed(pages, list(range(300, 332)))  # needs all eight pages
    assert shared(pages, list(range(9))) == 0
    assert not pages.groups[0].protected


def test_a_protection_ends_with_its_time_and_no_more_than_half_of_the_pages_have_one() -> None:
    pages = Pages([8], 4)
    protected(pages, list(range(16)), seconds=1e-9)
    pages.release(computed(pages, list(range(100, 116))))
    computed(pages, list(range(200, 208)))
    assert shared(pages, list(range(17))) == 2  # the last pages of the least recently used prompt are forgotten
    pages = Pages([8], 4)
    protected(pages, list(range(28)))
    assert len(pages.groups[0].protected) == 4
    assert pages.available == 8


PLACE = 31  # the id that holds the place of given rows


def given(digest: bytes, first: int = 2, count: int = 6) -> tuple[Features, ...]:
    return (Features(first, count, digest),)


def with_features(tokens: list[int], features: tuple[Features, ...]) -> Sequence:
    return Sequence(tokens, limit=len(tokens) + 8, features=features)


def test_equal_placeholders_of_different_features_never_share_a_page() -> None:
    tokens = [1, 2, *[PLACE] * 6, *range(3, 12)]
    pages, one = Pages([32], 4), with_features(tokens, given(b"one"))
    assert pages.admit(one, spare=0) and pages.grow(one, len(tokens))
    one.computed = len(tokens)
    pages.computed(one)
    pages.release(one)
    assert pages.match(with_features(tokens, given(b"one"))) == 4
    others = (given(b"two"), (), given(b"one", 2, 5), given(b"one", 3), (*given(b"one", 2, 3), *given(b"one", 5, 3)))
    assert [pages.match(with_features(tokens, other)) for other in others] == [0] * 5
    late = given(b"two", 5, 3)  # begins in the second page
    assert pages.match(with_features(tokens, late)) == 0
    assert not pages.fills_for(with_features(tokens, given(b"one")), with_features(tokens, given(b"two")))
    assert pages.fills_for(with_features(tokens, given(b"one")), with_features(tokens, given(b"one")))


def test_pages_before_features_are_shared_and_those_behind_are_not() -> None:
    tokens = [*range(8), PLACE, PLACE, *range(10)]
    pages, one = Pages([32], 4), with_features(tokens, given(b"one", 8, 2))
    assert pages.admit(one, spare=0) and pages.grow(one, len(tokens))
    one.computed = len(tokens)
    pages.computed(one)
    assert pages.match(with_features(tokens, given(b"two", 8, 2))) == 2
    assert pages.match(with_features(tokens, given(b"one", 8, 2))) == 4


def test_a_process_without_the_pages_names_them_alike() -> None:
    tokens, features = [*range(8), PLACE, PLACE, *range(10)], given(b"one", 8, 2)
    pages, one = Pages([32], 4), with_features(tokens, features)
    names = [pages._digest(one, index) for index in range(5)]
    assert page_names(b"", tokens, 4, features) == names
    assert page_names(b"", tokens, 4)[:2] == names[:2] and names[2] not in page_names(b"", tokens, 4)
