"""The size of a draft vocabulary by a tree-structured Parzen estimator, as published (arXiv 2603.05210).

The objective has one variable and is a table, so that `SizeObjective.best_size` finds the best size of all in no time; this is
here to do what the source does, and is held against it.
"""

from __future__ import annotations

from tts_orch.vocabulary.size_objective import SizeObjective

__all__ = ["search_size"]


def search_size(objective: SizeObjective, trials: int, seed: int) -> int:
    """Return the best of the sizes that were tried; the largest of all where none of them covers enough.

    Args:
        objective: what a size is worth.
        trials: how many are tried.
        seed: of the sampler.
    """
    import optuna  # slow to load

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def value(trial: optuna.Trial) -> float:
        return objective.value(trial.suggest_int("size", objective.smallest, objective.largest))

    study.optimize(value, n_trials=trials)
    return int(study.best_params["size"]) if study.best_value >= 0 else objective.largest
