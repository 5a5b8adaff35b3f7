"""A search tree that is browsed by opening its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tts_orch.reporting.markup import Markup, element
from tts_orch.reporting.search_tree import SearchNode, subtrees
from tts_orch.reporting.wording import counted, dotted, shortened, verdict, written_answer

__all__ = ["FATES", "fate", "tree_view"]

FATES: Final = {"chosen": "★", "kept": "●", "dropped": "○"}
"""What became of a candidate, and its sign."""

_TEASER: Final = 70


def fate(node: SearchNode) -> str:
    """Return which of `FATES` is a candidate's."""
    if node.is_chosen:
        return "chosen"
    return "kept" if node.decision.is_kept else "dropped"


def tree_view(forest: Sequence[SearchNode], anchor: str) -> Markup:
    """Return the trees as nested lists; what leads to the answer is open.

    Args:
        forest: the roots.
        anchor: makes the ids of the steps unique in the page.
    """
    signs = [element("li", element("b", sign), f" {name}") for name, sign in FATES.items()]
    groups = subtrees(forest)
    parts = [part for number, group in enumerate(groups) for part in (_heading(number, groups), _steps(group, anchor))]
    return element("div", element("ul", signs, class_="legend"), *parts, class_="tree")


def _heading(number: int, groups: Sequence[Sequence[SearchNode]]) -> Markup | None:
    return element("h5", f"Subtree {number}") if len(groups) > 1 else None


def _steps(nodes: Sequence[SearchNode], anchor: str) -> Markup | None:
    return element("ol", [_step(node, anchor) for node in nodes]) if nodes else None


def _step(node: SearchNode, anchor: str) -> Markup:
    text = node.text.strip("\n")
    details = element(
        "details",
        element("summary", *_headline(node)),
        element("pre", text) if text else element("p", "no text", class_="faint"),
        _steps(node.children, anchor),
        open=node.leads_to_chosen,
    )
    look = f"{fate(node)} lineage" if node.leads_to_chosen else fate(node)
    return element("li", details, id=f"{anchor}-{dotted(node.decision.path)}", class_=look)


def _headline(node: SearchNode) -> Iterator[Markup]:
    decision, became = node.decision, fate(node)
    yield element("b", FATES[became], title=became, class_="sign")
    scores = " ".join(f"{score:.3f}" for score in decision.step_scores)
    last = f"{decision.step_scores[-1]:.3f}" if scores else "no score"
    yield element("span", last, title=f"step scores: {scores}" if scores else None, class_="score")
    yield element("bdi", shortened(node.text, _TEASER), class_="teaser")
    if node.answer is not None:
        mark = None if node.is_correct is None else verdict(node.is_correct)
        yield element("span", "answer ", element("bdi", written_answer(node.answer)), " ", mark)
    facts = f"{decision.finish_reason.replace('_', ' ')}, {counted(decision.n_new, 'token')}"
    yield element("span", facts, class_="faint")
