"""The texts that draft heads are trained on and judged by: given ones, or the target's own answers, sampled on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from tts_orch.cli.training_samples import sampled_by, sampling
from tts_orch.records import Problem, SearchResult
from tts_orch.tasks.problems import read_problems
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.given_answers import Encoding, given_sequences, read_given_answers, shuffled
from tts_orch.training.drafters.settings import DataPart, DrafterTrainingConfig
from tts_orch.training.drafters.target_answers import answered_sequences, one_answer
from tts_orch.training.drafters.training_sequences import TrainingSequence
from tts_orch.training.labelled_data import content_hash
from tts_orch.training.process_rewards import settings_key

__all__ = ["sequences_of"]


def sequences_of(
    config: DrafterTrainingConfig,
    part: DataPart,
    base: BaseFiles,
    *,
    only_held_out: bool = False,
    on_answered: Callable[[int, int], object] = lambda n_answered, n_prompts: None,
) -> Generator[TrainingSequence, None, None]:
    """Yield the texts of a file in the order that the seed fixes, as they are asked for; close it when there are enough.

    Args:
        config: of the training.
        part: names the file.
        base: the target.
        only_held_out: leave out what is trained on.
        on_answered: told how many prompts the target has answered, and how many there are at most.

    Raises:
        OrchestratorError: the file is malformed, or the target cannot answer.
    """
    encoding = Encoding(base.tokenizer, config.template, min(config.max_length, base.max_tokens), config.held_out)
    path = config.data_folder / part.file

    def is_wanted(problem: Problem) -> bool:
        return not only_held_out or encoding.is_held_out(problem)

    if config.answers == "given":
        answers = shuffled(read_given_answers(path, part.answer_field or config.answer_field, part.lines), config.seed)
        yield from given_sequences([one for one in answers if is_wanted(one.problem)], encoding)
        return
    problems = [one for one in shuffled(read_problems(path)[part.lines], config.seed) if is_wanted(one)]
    folder = config.cache_folder / f"answers-{_answers_key(config, base, path)}"
    folder.mkdir(parents=True, exist_ok=True)
    n_answered = count(1)
    with sampling(config, folder) as generate:

        def answer(some: Sequence[Problem]) -> Generator[SearchResult, None, None]:
            with closing(generate(some, one_answer)) as results:
                for result in results:
                    on_answered(next(n_answered), len(problems))
                    yield result

        yield from answered_sequences(problems, encoding, answer)


def _answers_key(config: DrafterTrainingConfig, base: BaseFiles, path: Path) -> str:
    return settings_key(prompts=content_hash(path), **sampled_by(config, base))
