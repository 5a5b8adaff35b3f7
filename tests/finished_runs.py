"""Run folders of a toy target, as `tts-orch run` leaves them."""

from __future__ import annotations

import json
from pathlib import Path

from tts_orch.config import BestOfN, EngineConfig, LawConfig, RunConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import load_target
from tts_orch.records import Candidate, DecodeRequest, FinishReason
from tts_orch.run_folder import RunFolder
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

N_PROBLEMS, N_TRAJECTORIES = 4, 3


def finished_run(folder: Path, target: Path, temperature: float = 0.7) -> Path:
    """Decode some problems plainly and write their run folder."""
    problems = folder.with_suffix(".jsonl")
    lines = ({"id": f"p{number}", "prompt": f"the box {number} + {number} = "} for number in range(N_PROBLEMS))
    problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = RunConfig(
        problems=problems,
        engine=EngineConfig(target=str(target), drafter="none", kv_memory_gib=0.1),
        method=BestOfN(n=N_TRAJECTORIES),
        law=LawConfig(temperature=temperature, max_new_tokens=24),
        template="raw",
        out=folder,
    )
    model = load_target(config.engine)
    with RunFolder(config, read_problems(problems)) as run:
        run.begin({"weights": model.weights_id, "numerics": model.numerics}, [model.fingerprint])
        decoder, law = Decoder(model, None, config.engine), config.law.sampling_params()
        for problem in read_problems(problems):
            prompt = render(problem, model.tokenizer, "raw")
            for i in range(N_TRAJECTORIES):
                seed, tokens = trajectory_seed(0, problem.id, [i]), []
                decoder.submit(DecodeRequest("a", prompt, len(prompt), seed, law))
                while not decoder.is_idle:
                    tokens += [token for chunk in decoder.step() for token in chunk.token_ids.tolist()]
                run.journal.record(Candidate(problem.id, (i,), seed, tuple(tokens), "", FinishReason.LENGTH))
    return folder
