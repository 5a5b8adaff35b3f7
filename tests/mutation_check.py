"""Plant known faults one by one and see that the tests catch each.

    python tests/mutation_check.py            # all
    python tests/mutation_check.py noise kv   # those whose name contains a word

A fault is a small edit of one file in a copy of the tree; the tests named with it must then fail. The faults are the ones
that silently break losslessness in practice. Exit code 1 if a fault survives or no longer applies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Fault:
    """An edit that breaks exactness.

    Attributes:
        name: what is wrong with it.
        file: edited file, relative to the root.
        old: text that occurs exactly once in it.
        new: what it becomes.
        tests: what must fail, as pytest arguments.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str


EQUAL = "tests/exactness/test_token_equality.py"
CUTS = "tests/exactness/test_cuts.py"
MEMORY = "tests/exactness/test_memory.py"
STATISTICS = "tests/exactness/test_statistics.py"
RESTING = "tests/exactness/test_resting.py"
FEATURES = "tests/exactness/test_features.py"
TURNS = "tests/exactness/test_turns.py"
PROCESSORS = "tests/exactness/test_processors.py"
UNIT = "tests/unit"
DECODER = "tts_orch/engine/decoder.py"
LINK = "tts_orch/engine/drafter_link.py"
TRAJECTORY = "tts_orch/engine/trajectory.py"
GUMBEL = "policies/drafting/gumbel.py"
REJECTION = "tts_orch/engine/rejection.py"
TRIALS = "tts_orch/engine/sibling_trials.py"
REJECTION_RULE = "tests/unit/test_rejection.py"
REJECTION_LAW = "tests/exactness/test_rejection_law.py"
SCORER = "tests/unit/test_prefix_scorer.py"
MERGED_TREE = "policies/routing/merged_tree.py"
MERGED = "tests/unit/test_merged_tree.py"
COMPOSED = "tests/unit/test_composed_drafter.py"
ROUTING = "tests/unit/test_routing.py"
POOL_CLIENT = "tts_orch/drafters/pool_client.py"
POOL = "tests/unit/test_pool.py"
ACCOUNT = "policies/drafting/draft_account.py"
ACCOUNTS = "tests/unit/test_draft_account.py"

FAULTS = (
    Fault(
        "noise of one position used again at the next",
        GUMBEL,
        "words = _philox(np.uint64(token_id // 4), np.uint64(position),",
        "words = _philox(np.uint64(token_id // 4), np.uint64(position // 2),",
        f"{UNIT}/test_gumbel.py",
    ),
    Fault(
        "noise keyed without the seed",
        "tts_orch/engine/verification.py",
        "seeds = np.array([walk.seed for walk in active], np.uint64)",
        "seeds = np.array([0 for walk in active], np.uint64)",
        EQUAL,
    ),
    Fault(
        "noise of the position before",
        "tts_orch/engine/verification.py",
        "positions = np.array([walk.position + len(walk.nodes) for",
        "positions = np.array([walk.position + len(walk.nodes) - 1 for",
        EQUAL,
    ),
    Fault(
        "fresh noise in every verify step instead of the position's",
        "tts_orch/engine/verification.py",
        "positions = np.array([walk.position + len(walk.nodes) for",
        "positions = np.array([walk.position + 1 + 1000 * (len(walk.nodes) - 1) for",
        EQUAL,
    ),
    Fault(
        "draft nodes one position too far",
        "tts_orch/engine/packing.py",
        "positions=np.concatenate([committed, root_position + tree.depth[1:]]),",
        "positions=np.concatenate([committed, root_position + 1 + tree.depth[1:]]),",
        EQUAL,
    ),
    Fault(
        "draft nodes see another branch",
        "tts_orch/engine/packing.py",
        "paths = [tree.path(node) for node in range(1, tree.n_nodes)]",
        "paths = [list(range(1, int(tree.depth[node]))) + [node] for node in range(1, tree.n_nodes)]",
        EQUAL,
    ),
    Fault(
        "accepted keys are not moved to their place",
        DECODER,
        "moves.append(_moves(trajectory, start, accepted))",
        "moves.append(_moves(trajectory, start, accepted[:1]))",
        EQUAL,
    ),
    Fault(
        "keys of rejected drafts are not rolled back",
        DECODER,
        "trajectory.computed = start + len(accepted)",
        "trajectory.computed = start + len(accepted) + (plan.entry.n_drafts > len(accepted))",
        f"{EQUAL} {MEMORY}",
    ),
    Fault(
        "a shared page is written by a fork",
        "tts_orch/engine/admission.py",
        "        if trajectory.computed % PAGE:\n",
        "        if False:\n",
        f"{EQUAL} {MEMORY}",
    ),
    Fault(
        "a fork reads a page whose tokens differ",
        "tts_orch/engine/kv_slots.py",
        "common = int(differ[0]) if len(differ) else n",
        "common = n",
        f"{UNIT}/test_kv_slots.py",
    ),
    Fault(
        "tokens after EOS in an accepted block are committed",
        TRAJECTORY,
        "reason = self._ending(token, confidence)",
        "reason = self._ending(token, confidence) if n == len(tokens) else None",
        CUTS,
    ),
    Fault(
        "one token more than the limit",
        TRAJECTORY,
        "if self.length >= self.solution_limit:",
        "if self.length >= self.solution_limit - 1:",
        f"{CUTS} {EQUAL}",
    ),
    Fault(
        "statistics taken after the cut",
        "tts_orch/engine/observation.py",
        "walk.nodes[1 : n_committed + 1], np.int32)\n    committed = np.array(walk.tokens[:n_committed], np.int32)",
        "walk.nodes[1:], np.int32)\n    committed = np.array(walk.tokens, np.int32)",
        f"{CUTS} {STATISTICS}",
    ),
    Fault(
        "statistics taken twice",
        LINK,
        "        self.drafter.observe(steps)\n",
        "        self.drafter.observe(steps)\n        self.drafter.observe(steps)\n",
        STATISTICS,
    ),
    Fault(
        "drafts are drawn at rest",
        LINK,
        " or self.is_resting:\n",
        ":\n",
        RESTING,
    ),
    Fault(
        "learning goes on at rest",
        LINK,
        "        if self.balance is None or self.balance.affords_learning:\n",
        "        if True:\n",
        RESTING,
    ),
    Fault(
        "nothing is booked",
        DECODER,
        "        self._book(before, ",
        "        (lambda *_: None)(before, ",
        RESTING,
    ),
    Fault(
        "features of accepted drafts stay where they were drafted",
        "tts_orch/engine/kv_pages.py",
        "            self._move_rows(self.features, *places)\n",
        "            pass\n",
        FEATURES,
    ),
    Fault(
        "features of a copied page are lost",
        "tts_orch/engine/kv_pages.py",
        "            self.features[of_target] = self.features[of_source]\n",
        "            pass\n",
        FEATURES,
    ),
    Fault(
        "features are told again",
        LINK,
        "                trajectory.features_told = last\n",
        "                pass\n",
        FEATURES,
    ),
    Fault(
        "features of the root are told",
        LINK,
        "first, last = trajectory.features_told, trajectory.length - 1",
        "first, last = trajectory.features_told, trajectory.length",
        FEATURES,
    ),
    Fault(
        "turns: nobody is asked again",
        TRAJECTORY,
        "        self.is_asked = False\n        for n, ",
        "        for n, ",
        TURNS,
    ),
    Fault(
        "turns: the half that waits is verified too",
        LINK,
        "        waiting = set(map(id, others))\n",
        "        waiting: set[int] = set()\n",
        TURNS,
    ),
    Fault(
        "the text of a prompt is taken once for each trajectory",
        "tts_orch/engine/prompt_lessons.py",
        "        self._taught[key] = last\n",
        "",
        STATISTICS,
    ),
    Fault(
        "prompt statistics taken again after a preemption",
        LINK,
        "            trajectories[i].observe_from = trajectories[i].length\n",
        "            pass\n",
        STATISTICS,
    ),
    Fault(
        "penalties counted once a step",
        "tts_orch/engine/verification.py",
        "[walk.tokens for walk in active])",
        "[[] for walk in active])",
        f"{PROCESSORS} {EQUAL}",
    ),
    Fault(
        "minimum length judged at the root",
        "tts_orch/engine/laws.py",
        "if self._n_output + len(path) < self.params.min_new_tokens:",
        "if self._n_output < self.params.min_new_tokens:",
        f"{PROCESSORS} {UNIT}/test_laws.py",
    ),
    Fault(
        "a resumed trajectory forgets its history",
        TRAJECTORY,
        "        self.law.commit(output.tolist())\n",
        "",
        f"{EQUAL} {MEMORY} {CUTS}",
    ),
    Fault(
        "a resumed trajectory forgets the beginning of a stop string",
        TRAJECTORY,
        "                self._scanner.feed(token)\n",
        "                pass\n",
        f"{CUTS} {UNIT}/test_trajectory.py",
    ),
    Fault(
        "a moved step forgets how it began",
        TRAJECTORY,
        "            step_end.feed(token, confidence)\n",
        "            pass\n",
        EQUAL,
    ),
    Fault(
        "a delimiter may begin before its step",
        "tts_orch/engine/stop_strings.py",
        "        self._read = len(self._ids)  # ... and",
        "        self._read = 0  # ... and",
        f"{UNIT}/test_step_end.py",
    ),
    Fault(
        "a delimiter that came too early ends the step later",
        "tts_orch/engine/stop_strings.py",
        "            self._n_searched = len(self._tail)\n",
        "            self._n_searched = 0\n",
        f"{UNIT}/test_step_end.py {CUTS}",
    ),
    Fault(
        "a lost candidate forgets the confidence of its tokens",
        "actors/_live_candidate.py",
        "            confidences=self._known_confidences,\n",
        "            confidences=(),\n",
        "tests/integration",
    ),
    Fault(
        "ties go to the highest id",
        GUMBEL,
        "            if score > best:",
        "            if score >= best:",
        f"{UNIT}/test_gumbel.py",
    ),
    Fault(
        "top-p counts mass before the temperature",
        "tts_orch/engine/laws.py",
        "        weights = weights / temperature\n    return truncate(weights, top_k=top_k, top_p=top_p, min_p=min_p)",
        "        pass\n    return truncate(weights, top_k=top_k, top_p=top_p, min_p=min_p) / temperature",
        f"{PROCESSORS} {UNIT}/test_laws.py",
    ),
    Fault(
        "log-probabilities of the wrong row",
        DECODER,
        "log_probs = (chosen - statistics.log_normaliser)",
        "log_probs = (chosen - np.roll(statistics.log_normaliser, 1))",
        "tests/exactness",
    ),
    Fault(
        "the last key of a block is not seen",
        "tts_orch/engine/canonical_attention.py",
        "last = min(_PAGE, sight.positions[row] + 1 - block * _PAGE)",
        "last = min(_PAGE - 1, sight.positions[row] + 1 - block * _PAGE)",
        f"{UNIT}/test_attention.py",
    ),
    Fault(
        "SiLU left unstable",
        "tts_orch/engine/stable.py",
        "    if kind is not None:\n",
        "    if kind is not None and False:\n",
        f"{UNIT}/test_stable.py",
    ),
    Fault(
        "sums of a product cut differently for few rows",
        "tts_orch/engine/stable_linear.py",
        "n_chains = (inner + _LONGEST_CHAIN - 1) // _LONGEST_CHAIN",
        "n_chains = (inner + _LONGEST_CHAIN - 1) // _LONGEST_CHAIN + (last - first < 4)",
        f"{UNIT}/test_stable.py",
    ),
    Fault(
        "rejection: siblings tried in the order of their probability",
        "policies/drafting/draft_tree.py",
        "            children[parent].append(node)\n        return children\n",
        "            children[parent].append(node)\n        return [sorted(nodes, key=lambda node: -self.log_q[node])"
        " for nodes in children]\n",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: laws are not renormalised without earlier siblings",
        TRIALS,
        "        q[rank] /= max(q[rank].sum(), np.finfo(np.float64).tiny)\n",
        "",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: laws with earlier siblings still in them",
        TRIALS,
        "        q[rank][drawn[:rank]] = 0.0\n",
        "",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: a fixed child judged by a share of some law",
        TRIALS,
        "q[rank, drawn[rank]] = 1.0",
        "q[rank, drawn[rank]] = 0.5",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: laws at another temperature than that of the draw",
        TRIALS,
        "] = law_probs[row][is_known]\n",
        "] = law_probs[row][is_known] ** 0.6\n",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: a repeated token skipped, and its law with it",
        TRIALS,
        "        mass = p.sum() + rest\n",
        "        if (drawn[:rank] == drawn[rank]).any():\n            continue\n        mass = p.sum() + rest\n",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: a copy of a rejected child has a chance of its own",
        TRIALS,
        "            p = left\n",
        "            pass\n",
        f"{REJECTION_RULE} -k copies",
    ),
    Fault(
        "rejection: the residual is not renormalised",
        TRIALS,
        "        mass = p.sum() + rest\n",
        "        mass = p.sum() + rest if rank == 0 else mass\n",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: the last token drawn from the target's law",
        TRIALS,
        "np.concatenate([left for _, left in judged])",
        "log_p",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: one noise for all verify steps",
        REJECTION,
        "return walk.verify_step * DRAFTS_A_STEP + walk.nodes[-1]",
        "return walk.nodes[-1]",
        f"{REJECTION_LAW} -k three_tokens",
    ),
    Fault(
        "rejection: one noise for all nodes",
        REJECTION,
        "return walk.verify_step * DRAFTS_A_STEP + walk.nodes[-1]",
        "return walk.verify_step * DRAFTS_A_STEP",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: siblings share a coin",
        REJECTION,
        "coins(walk.seed, _position(walk), len(acceptances))",
        "coins(walk.seed, _position(walk), 1)",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: coins are bits of the noise",
        GUMBEL,
        "(_word(seed, position, 2, i) << _WORD) | _word(seed, position, 3, i)",
        "(_word(seed, position, 0, i) << _WORD) | _word(seed, position, 1, i)",
        REJECTION_RULE,
    ),
    Fault(
        "rejection: coins and drafts from one stream",
        DECODER,
        'stream_seed(request.seed, request.attempt, "coins")',
        'stream_seed(request.seed, request.attempt, "drafts")',
        f"{REJECTION_LAW} -k instead_of_rejected",  # what the coins' stream draws besides them is that token
    ),
    Fault(
        "rejection: a drawn tree is dropped",
        DECODER,
        "        decoding = self._take_turn("
        "self._reserve([t for t in self._admission.running if not t.is_prefilling]))\n"
        "        prefills = self._plan_prefills()\n"
        "        trees = self._draft(decoding, sum(len(plan.entry.token_ids) for plan in prefills))\n",
        "        drafting = [t for t in self._admission.running if not t.is_prefilling]\n"
        "        drawn = dict(zip(map(id, drafting), self._draft(drafting, 0)))\n"
        "        decoding = self._reserve(drafting)\n"
        "        prefills = self._plan_prefills()\n"
        "        trees = [drawn[id(t)] for t in decoding]\n",
        f"{REJECTION_LAW} -k dropped",
    ),
    Fault(
        "rejection: another attempt tosses the same coins",
        DECODER,
        'stream_seed(request.seed, request.attempt, "coins")',
        'stream_seed(request.seed, 0, "coins")',
        f"{REJECTION_LAW} -k attempts",
    ),
    Fault(
        "rejection: another attempt draws the same drafts",
        LINK,
        'stream_seed(request.seed, request.attempt, "drafts")',
        'stream_seed(request.seed, 0, "drafts")',
        f"{REJECTION_LAW} -k attempts",
    ),
    Fault(
        "rejection: laws of the root's history at every node",
        REJECTION,
        "[walk.tokens for walk in active])",
        "[[] for walk in active])",
        f"{REJECTION_LAW} -k transformers",
    ),
    Fault(
        "a reward model attends to the padding in front of kept tokens",
        "tts_orch/rewards/padded_batch.py",
        "is_kept = np.arange(n_past) >= (n_past - n_kept)[:, None, None]",
        "is_kept = np.arange(n_past) >= (0 * n_kept)[:, None, None]",
        SCORER,
    ),
    Fault(
        "a reward model counts positions from the end of what is kept",
        "tts_orch/rewards/padded_batch.py",
        "positions=torch.from_numpy(places + n_kept[:, None])",
        "positions=torch.from_numpy(places + 0 * n_kept[:, None])",
        SCORER,
    ),
    Fault(
        "a request for a reward sees the steps behind it",
        "tts_orch/rewards/padded_batch.py",
        "columns += [(token, end + at, branch, end) for at",
        "columns += [(token, end + at, branch, len(trunk)) for at",
        SCORER,
    ),
    Fault(
        "a reward of zero counts as none",
        "tts_orch/rewards/prefix_scorer.py",
        "for segment in (*row.kept, *new) if segment.score is not None)",
        "for segment in (*row.kept, *new) if segment.score)",
        SCORER,
    ),
    Fault(
        "a reward's prefix is known by its last segment alone",
        "tts_orch/rewards/prefix_memory.py",
        "digest = hashlib.blake2b(key, digest_size=16)",
        'digest = hashlib.blake2b(b"", digest_size=16)',
        SCORER,
    ),
    Fault(
        "kept reward prefixes lose what they stand on first",
        "tts_orch/rewards/prefix_memory.py",
        "for key in reversed(keys):",
        "for key in keys:",
        SCORER,
    ),
    Fault(
        "a literal mark in a step is read as the reward model's own",
        "tts_orch/rewards/segments.py",
        "    if tag and tag in text:",
        "    if False:",
        f"{UNIT}/test_reward_steps.py",
    ),
    Fault(
        "a solution that is too long gets a reward all the same",
        "tts_orch/rewards/segment_model.py",
        "        if n_tokens > self._max_context:",
        "        if False:",
        f"{UNIT}/test_reward_adapters.py",
    ),
    Fault(
        "a rule decides by who ends first",
        "policies/search/turns.py",
        'running[:1] if order == "index" else running',
        "running",
        f"{UNIT}/test_drawing.py",
    ),
    Fault(
        "a stop leaves what runs alone",
        "policies/search/turns.py",
        "        for task in running:\n            task.cancel()\n        await asyncio.gather(*running, return_exceptions=True)\n",
        "        pass\n",
        f"{UNIT}/test_drawing.py",
    ),
    Fault(
        "failed candidates agree with each other",
        "policies/search/drawing.py",
        "[next(numbers) if candidate.is_solution else None for candidate in candidates]",
        "[next(numbers) if candidate.is_solution else 0 for candidate in candidates]",
        f"{UNIT}/test_drawing.py",
    ),
    Fault(
        "a window of abstentions agrees",
        "policies/stopping/early_stopping.py",
        "len(window) == 1 and None not in window",
        "len(window) == 1",
        f"{UNIT}/test_early_stopping.py",
    ),
    Fault(
        "candidates that lost their confidence vote",
        "policies/stopping/deepconf.py",
        "score if score >= least else 0.0",
        "score",
        f"{UNIT}/test_drawing.py {UNIT}/test_deepconf.py",
    ),
    Fault(
        "an ignored end of thinking stays in the output",
        "policies/search/budget_forcing.py",
        "token_ids=piece.token_ids[: -len(end)]",
        "token_ids=piece.token_ids",
        f"{UNIT}/test_budget_forcing.py",
    ),
    Fault(
        "shared statistics: what is drained while a reload waits is lost",
        "tts_orch/store/replica.py",
        "self._is_drain_due() and self._inbox.n_reloads == 0",
        "self._is_drain_due()",
        "tests/store/test_inbox.py",
    ),
    Fault(
        "shared statistics: each portion of a reload replaces the ones before it",
        "tts_orch/store/inbox.py",
        "), is_reload and is_first",
        "), is_reload",
        "tests/store/test_inbox.py",
    ),
    Fault(
        "shared statistics: ids that are added up are not sorted",
        "policies/drafting/delta_sums.py",
        "own_ids[place - 1] > ids[i]",
        "own_ids[place - 1] < ids[i]",
        f"{UNIT}/test_context_delta.py",
    ),
    Fault(
        "merged trees: a repeated sibling stands twice",
        MERGED_TREE,
        "            while child >= 0 and tokens[child] != token[node]:\n",
        "            while child >= 0:\n",
        MERGED,
    ),
    Fault(
        "merged trees: a prefix keeps the first score, not the best",
        MERGED_TREE,
        "            elif score[node] > scores[child]:\n",
        "            elif False:\n",
        MERGED,
    ),
    Fault(
        "merged trees: of equal scores whoever came first",
        MERGED_TREE,
        "depth, n, np.int64(tokens[child]), np",
        "depth, n, np.int64(0), np",
        MERGED,
    ),
    Fault(
        "merged trees: a node hangs below a namesake of its parent",
        MERGED_TREE,
        "            above = place[first + parent[node]]\n",
        "            above = place[parent[node]]\n",
        MERGED,
    ),
    Fault(
        "composed drafters: drawn drafts are chosen from",
        "policies/drafting/composed_kinds.py",
        "        if tree.laws is not None:\n",
        "        if False:\n",
        COMPOSED,
    ),
    Fault(
        "composed drafters: a member grows by another one's rates",
        "policies/drafting/composed_kinds.py",
        "return slice(self._first_group[member], self._first_group[member + 1])",
        "return slice(0, self._first_group[member + 1] - self._first_group[member])",
        COMPOSED,
    ),
    Fault(
        "composed drafters: members that were not asked fall behind",
        "policies/drafting/composed_drafter.py",
        "            member.observe(steps)\n",
        "            member.observe([step for step in steps if (step.tree.source > 0).any()])\n",
        COMPOSED,
    ),
    Fault(
        "routings: the least sure tree is verified",
        "policies/routing/routing.py",
        "return max(drafts.values(), key=confidence)",
        "return min(drafts.values(), key=confidence)",
        ROUTING,
    ),
    Fault(
        "routings: trees of different sizes are compared by a mean",
        "policies/routing/tree_confidence.py",
        "return np.exp(_path_sums(log_q, parent)).sum() - 1.0",
        "return (np.exp(_path_sums(log_q, parent)).sum() - 1.0) / max(len(log_q) - 1, 1)",
        ROUTING,
    ),
    Fault(
        "routings: each trajectory of a problem begins without its standings",
        "policies/routing/problem.py",
        "standings = self._standings.setdefault(start.scope, Standings(self._n_steps))",
        "standings = Standings(self._n_steps)",
        ROUTING,
    ),
    Fault(
        "routings: the choice of the first tree is forgotten",
        "policies/routing/entropy.py",
        "            self._chosen[trajectory] = chosen\n",
        "            pass\n",
        ROUTING,
    ),
    Fault(
        "routings: a step counts twice for its trajectory",
        "policies/routing/expected_tokens.py",
        "        for estimate, memory in ((common, _MEMORY), (own, _OWN_MEMORY)):\n",
        "        for estimate, memory in ((common, _MEMORY), (own, _OWN_MEMORY), (own, _OWN_MEMORY)):\n",
        ROUTING,
    ),
    Fault(
        "pool: a tree on another root is taken",
        POOL_CLIENT,
        "            if tree is not None and tree.token[0] == told.root:\n",
        "            if tree is not None:\n",
        POOL,
    ),
    Fault(
        "pool: what was asked for before a step is taken after it",
        POOL_CLIENT,
        "            self._places.pop(step.trajectory, None)  # asked for",
        "            pass  # asked for",
        POOL,
    ),
    Fault(
        "pool: a trajectory gets the tree of its neighbour",
        POOL_CLIENT,
        "_Place(exchange, index) for index, name in enumerate(asked)",
        "_Place(exchange, len(asked) - 1 - index) for index, name in enumerate(asked)",
        POOL,
    ),
    Fault(
        "accounts: a drafter that does not pay never rests",
        ACCOUNT,
        "        self._is_resting = self._tokens < -self._excused\n",
        "        self._is_resting = False\n",
        ACCOUNTS,
    ),
    Fault(
        "accounts: a drafter that rests is never tried again",
        ACCOUNT,
        "        self._tokens = min(self._tokens + ALLOWANCE * n_roots, _MOST)\n",
        "        pass\n",
        ACCOUNTS,
    ),
    Fault(
        "accounts: drafting takes no time",
        ACCOUNT,
        "self._tokens + worth - seconds * tokens_a_second, _MOST)",
        "self._tokens + worth, _MOST)",
        ACCOUNTS,
    ),
    Fault(
        "accounts: catching up after a rest is a reason to rest",
        ACCOUNT,
        "self._excused = max(seconds - usual, 0.0) * tokens_a_second",
        "self._excused = 0.0 * tokens_a_second",
        ACCOUNTS,
    ),
)


def plant(fault: Fault, tree: Path) -> str:
    """Edit the copy and return the original text of the file."""
    path = tree / fault.file
    text = path.read_text()
    path.write_text(text.replace(fault.old, fault.new))
    return text


def is_caught(fault: Fault, tree: Path, kernels: Path) -> bool:
    """Run the fault's tests in the copy; faulty kernels are built apart, since their cache does not know callees."""
    with tempfile.TemporaryDirectory() as apart:
        is_kernel = "njit" in (tree / fault.file).read_text()
        environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": apart if is_kernel else str(kernels)}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *fault.tests.split()]
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise SystemExit(f"{fault.name}: the tests could not run\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return run.returncode == 1


def main() -> int:
    """Check the faults whose names contain one of the words given."""
    words = sys.argv[1:]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", "*.egg-info", ".*_cache")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=ignored)
        for number, fault in enumerate(chosen, start=1):
            started = time.monotonic()
            original = plant(fault, tree)
            caught = is_caught(fault, tree, Path(folder) / "kernels")
            (tree / fault.file).write_text(original)
            verdict = "caught" if caught else "SURVIVED"
            print(f"{number}/{len(chosen)} {verdict:8} {time.monotonic() - started:5.0f} s  {fault.name}", flush=True)
            survivors += [] if caught else [fault.name]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} faults caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
