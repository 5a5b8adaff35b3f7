#!/bin/sh
# Trains the heads that benchmarks/vocabulary.py compares: of all tokens, and of the vocabularies that its part `choices` wrote.
# Then looks for the fastest vocabulary of each head. What is there already is not done again; what a head learns from, and for
# how long, stands in recipes/drafters.
#
#   sh benchmarks/vocabulary_heads.sh DATA HEADS OUT [LOSS...]
set -eu
data=$1 heads=$2 out=$3
shift 3
test $# -gt 0 || set -- eagle2 eagle3
command=${TTS_ORCH:-tts-orch}

train() { # LOSS NAME FOLDER TEXTS [OPTION...]
    loss=$1 recipe=$2 folder=$heads/$1/$3 texts=$4
    shift 4
    test -f "$folder/model.safetensors" || $command drafter train --config "recipes/drafters/$recipe.yaml" \
        --data-folder "$texts" --target smollm2 --cache "$heads/cache" --precision bfloat16 --dtype bfloat16 \
        --loss "$loss" --out "$folder" "$@"
}

for loss in "$@"; do for name in mixed tools entities; do
    corpus=$name texts=$out/texts/training
    test "$name" = mixed && corpus=general texts=$data
    train "$loss" "$name" "$name" "$texts"
    test "$loss" = eagle2 ||
        train "$loss" "$name" "$name-trimmed" "$texts" --vocabulary "$out/vocabularies/$corpus.safetensors"
    measured=$out/measured/$loss/$name
    test -f "$measured/vocabulary.safetensors" || $command vocabulary trim --config "recipes/drafters/$name.yaml" \
        --data-folder "$texts" --target smollm2 --objective measured --drafter "$heads/$loss/$name" \
        --max-nodes 8 --draft-depth 4 --draft-width 2 --out "$measured"
done; done
