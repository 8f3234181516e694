from __future__ import annotations

import numpy as np
import pytest

from appliance.engine.pace import Rate, chunk_tokens
from appliance.engine.slots import Slot, TokenArray, choose_slot, common_prefix


def tokens(*values: int) -> TokenArray:
    return np.array(values, dtype=np.int32)


def slot(seq_id: int, held: TokenArray, last_used: int = 0, work: str | None = None) -> Slot[str]:
    return Slot(seq_id, held, work, last_used)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [((), (1,), 0), ((1, 2, 3), (1, 2), 2), ((1, 2), (1, 3), 1), ((5,), (6,), 0)],
    ids=["empty", "longer", "diverging", "different"],
)
def test_common_prefix_counts_equal_leading_tokens(
    a: tuple[int, ...], b: tuple[int, ...], expected: int
) -> None:
    assert common_prefix(tokens(*a), tokens(*b)) == expected


def test_next_turn_continues_in_the_slot_of_its_chat() -> None:
    slots = [slot(0, tokens(1, 2, 3, 4), 2), slot(1, tokens(1, 9, 9, 9), 1)]

    choice = choose_slot(slots, tokens(1, 2, 3, 4, 5), can_share=True)

    assert (choice.slot.seq_id, choice.source.seq_id, choice.n_common) == (0, 0, 4)


def test_same_prompt_again_leaves_one_token_to_compute() -> None:
    choice = choose_slot([slot(0, tokens(1, 2, 3))], tokens(1, 2, 3), can_share=True)

    assert choice.n_common == 2


def test_shared_head_of_another_chat_is_copied_and_that_chat_keeps_its_cache() -> None:
    slots = [slot(0, tokens(1, 2, *range(10, 30)), 5), slot(1, tokens(), 0)]

    choice = choose_slot(slots, tokens(1, 2, 7, 8), can_share=True)

    assert (choice.slot.seq_id, choice.source.seq_id, choice.n_common) == (1, 0, 2)


def test_head_of_a_running_answer_is_shared_too() -> None:
    slots = [slot(0, tokens(1, 2, 3), 5, work="busy"), slot(1, tokens(8), 1)]

    choice = choose_slot(slots, tokens(1, 2, 3, 4), can_share=True)

    assert (choice.slot.seq_id, choice.source.seq_id, choice.n_common) == (1, 0, 3)


def test_without_sharing_only_free_slots_count() -> None:
    slots = [slot(0, tokens(1, 2, 3), 5, work="busy"), slot(1, tokens(1), 1)]

    choice = choose_slot(slots, tokens(1, 2, 3, 4), can_share=False)

    assert (choice.slot.seq_id, choice.source.seq_id, choice.n_common) == (1, 1, 1)


def test_unknown_prompt_takes_an_empty_slot_before_an_old_one() -> None:
    slots = [slot(0, tokens(5), 1), slot(1, tokens(), 0), slot(2, tokens(6), 2)]

    assert choose_slot(slots, tokens(9, 9), can_share=True).slot.seq_id == 1
    assert choose_slot([slots[0], slots[2]], tokens(9, 9), can_share=True).slot.seq_id == 0


def test_first_step_is_small_and_later_ones_fit_the_target() -> None:
    rate = Rate()
    assert chunk_tokens(rate, 0.4, least=32, most=512) == 64

    rate.add(400, 1.0)

    assert chunk_tokens(rate, 0.4, least=32, most=512) == 160
    assert chunk_tokens(rate, 100.0, least=32, most=512) == 512
    assert chunk_tokens(rate, 0.001, least=32, most=512) == 32
