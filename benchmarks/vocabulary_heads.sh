#!/bin/sh
# Trains the heads that benchmarks/vocabulary.py compares: of all tokens, and of the vocabularies that its part `choices` wrote.
# Then looks for the fastest vocabulary of each head. What is there already is not done again.
#
#   sh benchmarks/vocabulary_heads.sh DATA HEADS OUT [LOSS...]
set -eu
data=$1 heads=$2 out=$3
shift 3
test $# -gt 0 || set -- eagle2 eagle3
command=${TTS_ORCH:-tts-orch}
options="--target smollm2 --cache $heads/cache --precision bfloat16 --dtype bfloat16"

texts() { # what a head of this name learns from
    case $1 in
    mixed) echo "--config recipes/drafters/mixed.yaml --data-folder $data" ;;
    *) echo "--data $1.jsonl --data-folder $out/texts/training --template raw" ;;
    esac
}

train() { # LOSS NAME FOLDER [OPTION...]
    folder=$heads/$1/$3 loss=$1 name=$2
    shift 3
    test -f "$folder/model.safetensors" && return
    effort=
    test "$name" = mixed || effort="--batch-tokens 1024 --learning-rate 0.001 --epochs 3"
    # shellcheck disable=SC2046,SC2086
    $command drafter train $(texts "$name") $options $effort --loss "$loss" --out "$folder" "$@"
}

for loss in "$@"; do for name in mixed tools entities; do
    corpus=$name
    test "$name" = mixed && corpus=general
    train "$loss" "$name" "$name"
    test "$loss" = eagle2 || train "$loss" "$name" "$name-trimmed" --vocabulary "$out/vocabularies/$corpus.safetensors"
    test -f "$out/measured/$loss/$name/vocabulary.safetensors" ||
        $command vocabulary trim $(texts "$name") --target smollm2 --objective measured --drafter "$heads/$loss/$name" \
            --max-nodes 8 --draft-depth 4 --draft-width 2 --out "$out/measured/$loss/$name"
done; done
