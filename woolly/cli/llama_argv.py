"""The options of llama.cpp's programs, in tables: which of ours each is, which change no answer here and why, and which
would change one and are refused. `compat_argv` walks them; docs/coming-from.md shows those of llama-server.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def rows(*pairs: tuple[T, str]) -> dict[str, T]:
    """A table from each word to its meaning, written as pairs of a meaning and its words, separated by spaces."""
    return {word: meant for meant, words in pairs for word in words.split()}


HUB = ("-hf", "-hfr", "--hf-repo", "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf")  # values: repos of the hub
HUB_FILE = ("-hff", "--hf-file")  # the file in the repo that another flag names

# Our option, and its names in llama.cpp; the value stays.
SAMPLING = rows(
    ("--temperature", "--temp"),
    ("--repetition-penalty", "--repeat-penalty"),
    ("--typical-p", "--typical"),
    ("--top-n-sigma", "--top-nsigma"),
    ("--mirostat-tau", "--mirostat-ent"),
    ("--mirostat-eta", "--mirostat-lr"),
    ("--dynatemp-exponent", "--dynatemp-exp"),
    ("--max-tokens", "-n --predict --n-predict"),
)
SERVER = {
    **SAMPLING,
    **rows(
        ("--model", "-m -hf -hfr --hf-repo"),
        ("--context", "--ctx-size"),
        ("--sequences", "-np --parallel"),
        ("--draft", "-md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf"),
        ("--kv", "-ctk -ctv --cache-type-k --cache-type-v"),
        ("--seed", "-s"),
        ("--timeout", "-to"),
        ("--thinking", "-rea --reasoning"),
        ("--keep-alive", "--sleep-idle-seconds"),
        ("--max-loaded", "--models-max"),
        ("--tls-key", "--ssl-key-file"),
        ("--tls-cert", "--ssl-cert-file"),
    ),
}

GPU = "Woolly computes on the processor"
MEMORY = "weights are packed once into memory of their own"
THREADS = "each thread keeps to a processor of its own"
STEPS = "the size of a step is chosen by the engine"
CACHE = "pages of keys and values are shared and kept by themselves"
TEMPLATE = "the file's own template is always used"
TOGETHER = "requests are answered together as they come"
PAGE = "the page costs nothing while nobody opens it"
GUESSES = "how many tokens are guessed follows from how many were right"
LOG = "--log-level and --json-logs say what is logged"
SHIFT = "a context is never shifted: an answer ends where it does"
OWN_MESSAGE = "an answer is a message of its own where its request does not say otherwise"
AS_IT_IS = "texts are taken as they are"
PICTURES = "pictures and sounds are not supported"

# How many words follow the flag, and why it has no effect here.
NOTED = rows(  # of all programs
    ((1, GPU), "-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu -dev --device"),
    ((1, GPU), "-ot --override-tensor -ncmoe --n-cpu-moe -fit --fit -fitt --fit-target -fitc --fit-ctx --rpc"),
    ((0, GPU), "-cmoe --cpu-moe -kvo --kv-offload -nkvo --no-kv-offload --op-offload --no-op-offload --no-host"),
    ((0, GPU), "-bs --backend-sampling"),
    ((1, "attention is always computed that way"), "-fa --flash-attn"),
    ((0, MEMORY), "--mmap --no-mmap --mlock -dio --direct-io -ndio --no-direct-io --repack -nr --no-repack"),
    ((0, "every weight is checked"), "--check-tensors"),
    ((1, THREADS), "--numa -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll"),
    ((1, THREADS), "-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch"),
    ((1, "prompts use the same threads"), "-tb --threads-batch"),
    ((1, STEPS), "-b --batch-size -ub --ubatch-size"),
    ((1, CACHE), "-dt --defrag-thold -ctxcp --ctx-checkpoints --swa-checkpoints -cram --cache-ram --cache-reuse"),
    ((1, CACHE), "-cpent --checkpoint-every-n-tokens"),
    ((0, CACHE), "--swa-full -kvu --kv-unified -no-kvu --no-kv-unified"),
    ((0, SHIFT), "--no-context-shift"),
    ((1, SHIFT), "--keep"),
    ((0, TEMPLATE), "--jinja --no-jinja"),
    ((0, "there is no warming up"), "--warmup --no-warmup"),
    ((0, "times are always measured"), "--perf --no-perf"),
    ((0, AS_IT_IS), "--no-escape"),
    ((1, PICTURES), "--image-min-tokens --image-max-tokens"),
    ((0, PICTURES), "--no-mmproj --mmproj-auto --no-mmproj-auto --mmproj-offload --no-mmproj-offload"),
)
NOTED_BY_SERVER = rows(
    ((0, AS_IT_IS), "-e --escape"),
    ((0, TOGETHER), "-cb --cont-batching -nocb --no-cont-batching"),
    ((1, TOGETHER), "--threads-http"),
    ((1, "every request begins with the pages that others have computed"), "-sps --slot-prompt-similarity"),
    ((0, "one process listens"), "--reuse-port"),
    ((0, "GET /slots and GET /props always answer"), "--slots --no-slots --props"),
    ((0, "GET /metrics always answers"), "--metrics"),
    ((0, PAGE), "--webui --no-webui --ui --no-ui"),
    ((0, PAGE), "--webui-mcp-proxy --no-webui-mcp-proxy --ui-mcp-proxy --no-ui-mcp-proxy"),
    ((1, PAGE), "--webui-config --webui-config-file --ui-config --ui-config-file"),
    ((0, "a model made for it is always served so"), "--embedding --embeddings --rerank --reranking"),
    ((0, "what was computed for the beginning of a prompt is always kept"), "--cache-prompt --no-cache-prompt"),
    ((1, "--cache-dir says where what was computed is kept"), "--slot-save-path"),
    ((0, "models are loaded when a request names them"), "--models-autoload --no-models-autoload"),
    ((1, "tags would only be shown"), "--tags"),
    ((1, PICTURES), "--media-path"),
    ((1, "thoughts are always told apart, as reasoning_content"), "--reasoning-format"),
    ((1, "thinking has no budget whose end could be told"), "--reasoning-budget-message"),
    ((0, OWN_MESSAGE), "--no-prefill-assistant"),
    ((0, "calls and thoughts are always told apart"), "--no-skip-chat-parsing"),
    ((1, GUESSES), "--draft-max --draft-n --draft-min --draft-n-min --draft-p-min --draft-p-split"),
    ((1, GUESSES), "--spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --spec-draft-p-split --spec-type"),
    ((1, GUESSES), "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits --spec-ngram-check-rate"),
    ((1, GUESSES), "-lcs --lookup-cache-static -lcd --lookup-cache-dynamic"),
    ((0, GUESSES), "--spec-default"),
    ((2, "a draft has the vocabulary of its model"), "--spec-replace"),
    ((1, "a draft is loaded as its model is"), "-cd --ctx-size-draft -td --threads-draft -tbd --threads-batch-draft"),
    ((1, "a draft is loaded as its model is"), "-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft"),
    ((1, GPU), "-devd --device-draft -ngld --gpu-layers-draft --n-gpu-layers-draft"),
    ((1, GPU), "-otd --override-tensor-draft -ncmoed --n-cpu-moe-draft"),
    ((0, GPU), "-cmoed --cpu-moe-draft"),
    ((0, LOG), "-v --verbose --log-verbose --log-disable --verbose-prompt"),
    ((0, LOG), "--log-prefix --no-log-prefix --log-timestamps --no-log-timestamps"),
    ((1, LOG), "-lv --verbosity --log-verbosity --log-colors --log-format"),
)

# Advice in place of a flag that would change an answer.
ORDER = "their order is fixed: penalties, DRY, top-n-sigma, top-k, typical, top-p, min-p, XTC, temperature"
EACH = "each request says it by itself, as `grammar`, `json_schema` or `response_format`"
ROPE = "the file says how positions are turned, and --context how far"
REFUSED = rows(  # of all programs
    (ORDER, "--samplers --sampler-seq --sampling-seq"),
    ("no sampler adapts; --mirostat 2 holds the surprise of an answer", "--adaptive-target --adaptive-decay"),
    (ROPE, "--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale"),
    (ROPE, "--yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast"),
    ("the file's metadata count as they are", "--override-kv"),
    ("--lora FILE=SCALE says both", "--lora-scaled"),
    ("--lora FILE=0 loads an adapter that nothing uses yet", "--lora-init-without-apply"),
    ("control vectors are not supported", "--control-vector --control-vector-scaled --control-vector-layer-range"),
    ("a context is never shifted: raise --context", "--context-shift"),
    (PICTURES, "-mm --mmproj -mmu --mmproj-url"),
    ("the file's own template is always used", "--chat-template --chat-template-file"),
    ("`woolly pull URL` downloads a file and tells its name", "-mu --model-url"),
    ("name a repo of the hub: `-hf owner/repo`", "-dr --docker-repo"),
    ("set HF_TOKEN: every user of this machine sees a command line", "-hft --hf-token"),
    ("sounds are not supported", "-hfv -hfrv --hf-repo-v -hffv --hf-file-v -mv --model-vocoder --tts-use-guide-tokens"),
    ("`woolly doctor` tells what this machine has", "--list-devices"),
    ("`woolly list` names the models that are here", "-cl --cache-list"),
    ("`woolly completion bash` prints the script", "--completion-bash"),
    ("`woolly --version` tells it", "--version"),
    ("--help tells the options, and the file LICENSE the licence", "--usage --license"),
    (
        "name the model: `-hf owner/repo`",
        "--embd-bge-small-en-default --embd-e5-small-en-default --embd-gte-small-default --embd-gemma-default "
        "--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec "
        "--fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default "
        "--vision-gemma-12b-default",
    ),
)
REFUSED_BY_SERVER = rows(
    (EACH, "--grammar --grammar-file -j --json-schema -jf --json-schema-file"),
    ("each request says it by itself, as `stop`", "-r --reverse-prompt"),
    ("each request says it by itself, as `logit_bias`", "--logit-bias"),
    ("each request says it by itself, as `dry_sequence_breakers`", "--dry-sequence-breaker"),
    ("each request says it by itself, as `ignore_eos`", "--ignore-eos"),
    ("control tokens have no text in answers", "-sp --special"),
    ("the parts of a gap stand in the order of the file's model", "--spm-infill"),
    ("the file says what each token attends to", "--attention"),
    ("a proxy can put a prefix before all paths", "--api-prefix"),
    ("Woolly's own page is served, and no other files", "--path"),
    ("MCP servers have tools, and none are built in", "--tools"),
    ("name the models in the settings (`woolly config show models`)", "--models-preset"),
    ("calls and thoughts are always told apart", "--skip-chat-parsing"),
    (OWN_MESSAGE, "--prefill-assistant"),
    ("thoughts are always told apart, as reasoning_content", "--reasoning-format=none"),
    ("thinking has no budget: `--reasoning off` answers at once", "--reasoning-budget"),
)
BY_VALUE: dict[str, list[str]] = {  # a flag of llama-server with this value -> our words
    "--reasoning-budget=0": ["--thinking", "off"],
    "--reasoning-budget=-1": [],
}
