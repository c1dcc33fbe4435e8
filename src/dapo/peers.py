"""What verl, TRL, transformers and OpenRLHF call the things that are settings here.

From this one table come the message that a person gets who types one of those names, and the table in
docs/algorithm.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

SYSTEMS = {"verl": "verl", "trl": "TRL", "transformers": "transformers", "openrlhf": "OpenRLHF"}
"""Column -> name of the system."""
VERL_PREFIX = "actor_rollout_ref."
"""Stands before `actor.`, `rollout.` and `model.` in verl; left out below."""


@dataclass(frozen=True)
class Row:
    """One thing and its names, several of them separated by blanks."""

    here: str
    """Settings of this package; one thing may be called differently by its commands. Empty: there is none."""
    verl: str = ""
    trl: str = ""
    transformers: str = ""
    openrlhf: str = ""
    note: str = ""
    """How the meaning differs, or why there is none here; a person reads it behind the setting."""


ROWS = (
    Row(
        "algo",
        verl="algorithm.adv_estimator actor.policy_loss.loss_mode",
        trl="importance_sampling_level",
        openrlhf="advantage_estimator policy_loss_type",
        note="`dapo algorithms` lists what there is; a ratio of whole answers is gspo",
    ),
    Row(
        "dapo_clip_eps_low clip_eps_low",
        verl="actor.clip_ratio_low actor.clip_ratio",
        trl="epsilon",
        openrlhf="eps_clip",
        note="the second is that of the other algorithms",
    ),
    Row(
        "dapo_clip_eps_high clip_eps_high",
        verl="actor.clip_ratio_high",
        trl="epsilon_high",
        note="the second is that of the other algorithms",
    ),
    Row(
        "dapo_clip_eps_low dapo_clip_eps_high",
        openrlhf="eps_clip_low_high",
        note="its two numbers are two settings here",
    ),
    Row("clip_ratio_c", verl="actor.clip_ratio_c", trl="delta", openrlhf="dual_clip"),
    Row(
        "loss_aggregation",
        verl="actor.loss_agg_mode",
        trl="loss_type",
        note="TRL's dapo is token-mean, its grpo seq-mean-token-mean, its dr_grpo seq-mean-token-sum-norm",
    ),
    Row(
        "scale_advantages",
        verl="algorithm.norm_adv_by_std_in_grpo",
        trl="scale_rewards",
        openrlhf="no_advantage_std_norm",
        note="group, batch or none; none for verl's False and OpenRLHF's switch",
    ),
    Row(
        "dynamic_sampling",
        verl="algorithm.filter_groups.enable",
        openrlhf="dynamic_filtering",
        note="on for algo dapo without being asked",
    ),
    Row("filter_groups_metric", verl="algorithm.filter_groups.metric"),
    Row(
        "",
        openrlhf="dynamic_filtering_reward_range",
        note="a group is kept when its answers disagree, whatever their mean",
    ),
    Row("dapo_gen_batch_size", verl="data.gen_batch_size", openrlhf="vllm_generate_batch_size", note="counts prompts"),
    Row(
        "dapo_max_num_gen_batches",
        verl="algorithm.filter_groups.max_num_gen_batches",
        note="verl's 0 is no limit; here a limit is needed",
    ),
    Row(
        "dapo_overlong_buffer_len",
        verl="reward_model.overlong_buffer.len reward_model.overlong_buffer.enable",
        trl="soft_punish_cache",
        openrlhf="overlong_buffer_len",
        note="0 switches the penalty off",
    ),
    Row(
        "dapo_overlong_penalty_factor",
        verl="reward_model.overlong_buffer.penalty_factor",
        openrlhf="overlong_penalty_factor",
    ),
    Row("mask_overlong_truncated", trl="mask_truncated_completions"),
    Row("ckpt", verl="model.path", trl="model model_name_or_path", openrlhf="pretrain"),
    Row("model_hub", openrlhf="use_ms", note="modelscope for its switch"),
    Row(
        "dtype",
        verl="rollout.dtype",
        trl="torch_dtype",
        transformers="bf16 fp16",
        openrlhf="bf16",
        note="bfloat16 for the switch bf16; float16 is not offered",
    ),
    Row("trust_remote_code", verl="model.trust_remote_code data.trust_remote_code"),
    Row("attn_backend", trl="attn_implementation", openrlhf="attn_implementation", note="there is one, leave it out"),
    Row(
        "activation_checkpointing",
        verl="model.enable_gradient_checkpointing",
        transformers="gradient_checkpointing",
        openrlhf="gradient_checkpointing",
    ),
    Row("dataset_path", verl="data.train_files", trl="dataset_name train_dataset", openrlhf="prompt_data"),
    Row(
        "dataset_path",
        trl="dataset_config dataset_train_split",
        openrlhf="prompt_split",
        note="a hub id carries them: repo:config:split",
    ),
    Row("dataset_loader_fn", verl="data.custom_cls.path", note="a function that gives the rows, not a class"),
    Row(
        "max_prompt_tokens",
        verl="data.max_prompt_length rollout.prompt_length",
        trl="max_prompt_length",
        openrlhf="prompt_max_len",
        note="longer prompts are dropped, never cut",
    ),
    Row(
        "reward_fn_path reward",
        verl="custom_reward_function.path custom_reward_function.name",
        trl="reward_funcs",
        openrlhf="remote_rm_url",
        note="your own as file.py:function, or the name of a built-in one",
    ),
    Row(
        "n_samples n",
        verl="rollout.n n_resp_per_prompt",
        trl="num_generations",
        openrlhf="n_samples_per_prompt",
    ),
    Row(
        "max_new_tokens",
        verl="data.max_response_length rollout.response_length",
        trl="max_completion_length",
        openrlhf="generate_max_len",
    ),
    Row("temperature", verl="rollout.temperature"),
    Row("top_p", verl="rollout.top_p"),
    Row("top_k", verl="rollout.top_k", note="0, not -1, is all tokens"),
    Row("greedy", verl="rollout.do_sample", note="only for evaluation: a group of equal answers teaches nothing"),
    Row("max_num_seqs", verl="rollout.max_num_seqs"),
    Row(
        "kv_cache_gb",
        verl="rollout.gpu_memory_utilization",
        trl="vllm_gpu_memory_utilization",
        openrlhf="vllm_gpu_memory_utilization",
        note="in gigabytes, not a share of the GPU",
    ),
    Row("eager_decode", verl="rollout.enforce_eager", openrlhf="enforce_eager"),
    Row(
        "batch_size",
        verl="data.train_batch_size",
        trl="generation_batch_size",
        openrlhf="rollout_batch_size",
        note="counts prompts; TRL's counts answers, so divide it by n_samples",
    ),
    Row(
        "mini_bs gradient_accumulation_steps",
        verl="actor.ppo_mini_batch_size",
        trl="steps_per_generation",
        openrlhf="train_batch_size",
        note="their product, a step's answers; verl's mini-batch counts prompts, so multiply it by n_samples",
    ),
    Row(
        "mini_bs",
        verl="actor.ppo_micro_batch_size_per_gpu actor.ppo_micro_batch_size",
        transformers="per_device_train_batch_size",
        openrlhf="micro_train_batch_size",
        note="answers of one pass; the prompts of an update are batch_size",
    ),
    Row("lr", verl="actor.optim.lr", transformers="learning_rate", openrlhf="actor_learning_rate"),
    Row(
        "lr_warmup_steps",
        verl="actor.optim.lr_warmup_steps actor.optim.lr_warmup_steps_ratio",
        transformers="warmup_steps warmup_ratio",
        openrlhf="lr_warmup_ratio",
        note="a number of updates, not a share of them",
    ),
    Row(
        "lr_schedule",
        verl="actor.optim.warmup_style actor.optim.lr_scheduler_type",
        transformers="lr_scheduler_type",
        openrlhf="lr_scheduler",
        note="constant or cosine",
    ),
    Row(
        "min_lr",
        verl="actor.optim.min_lr_ratio",
        transformers="lr_scheduler_kwargs",
        note="the rate itself, not a share of lr",
    ),
    Row("adam_beta1 adam_beta2", openrlhf="adam_betas", note="its two numbers are two settings here"),
    Row("weight_decay", verl="actor.optim.weight_decay", openrlhf="l2"),
    Row("grad_clip_norm", verl="actor.grad_clip", transformers="max_grad_norm", openrlhf="max_norm"),
    Row(
        "max_tokens_per_pass",
        verl="actor.ppo_max_token_len_per_gpu",
        openrlhf="train_max_tokens_per_gpu",
    ),
    Row("save_path", verl="trainer.default_local_dir", transformers="output_dir", openrlhf="ckpt_path"),
    Row("epochs", verl="trainer.total_epochs", transformers="num_train_epochs", openrlhf="num_episodes"),
    Row("max_steps", verl="trainer.total_training_steps", note="counts updates"),
    Row("seed", transformers="data_seed"),
    Row("eval_dataset_path", verl="data.val_files", trl="eval_dataset", openrlhf="eval_dataset"),
    Row(
        "eval_interval",
        verl="trainer.test_freq",
        transformers="eval_steps eval_strategy",
        openrlhf="eval_steps",
        note="a number of updates",
    ),
    Row(
        "eval_n n",
        verl="rollout.val_kwargs.n",
        trl="num_generations_eval",
        openrlhf="eval_n_samples_per_prompt",
    ),
    Row(
        "save_interval",
        verl="trainer.save_freq",
        transformers="save_steps save_strategy",
        openrlhf="save_steps",
        note="a number of updates, 0 for the end only",
    ),
    Row(
        "keep_checkpoints",
        verl="trainer.max_actor_ckpt_to_keep",
        transformers="save_total_limit",
        openrlhf="max_ckpt_num",
    ),
    Row("keep_best", transformers="load_best_model_at_end", note="final/ stays the last model"),
    Row(
        "resume",
        verl="trainer.resume_from_path trainer.resume_mode",
        transformers="resume_from_checkpoint",
        openrlhf="load_checkpoint",
        note="a flag that takes the run's folder, or auto",
    ),
    Row(
        "train_devices device",
        verl="trainer.device trainer.n_gpus_per_node",
        transformers="use_cpu",
        openrlhf="actor_num_gpus_per_node",
        note="auto, cpu, or the number of one GPU",
    ),
    Row("world_size", verl="trainer.nnodes", openrlhf="actor_num_nodes", note="1 in this version"),
    Row(
        "tp_size",
        verl="rollout.tensor_model_parallel_size",
        trl="vllm_tensor_parallel_size",
        openrlhf="vllm_tensor_parallel_size",
        note="1 in this version",
    ),
    Row("agent_fn", verl="rollout.multi_turn.enable", openrlhf="agent_func_path", note="not built yet"),
    Row("solution_key", verl="data.response_key", openrlhf="output_key"),
    Row("max_tokens", verl="data.max_length", trl="max_length max_seq_length", openrlhf="max_len"),
    Row("shuffle", verl="data.shuffle", trl="shuffle_dataset"),
    Row(
        "",
        verl="actor.use_kl_loss actor.kl_loss_coef actor.kl_loss_type algorithm.use_kl_in_reward "
        "algorithm.kl_penalty algorithm.kl_ctrl.kl_coef",
        trl="beta sync_ref_model",
        openrlhf="init_kl_coef use_kl_loss kl_estimator kl_target",
        note="it belongs to a KL term, and DAPO has none",
    ),
    Row(
        "",
        verl="actor.ppo_epochs",
        trl="num_iterations",
        openrlhf="max_epochs",
        note="each answer is trained once; a smaller mini_bs makes more optimizer steps of an update",
    ),
    Row(
        "",
        verl="algorithm.gamma algorithm.lam critic.model.path critic.optim.lr",
        openrlhf="critic_pretrain critic_learning_rate gamma lambd",
        note="advantages come from the group, there is no critic",
    ),
    Row("", verl="actor.entropy_coeff", openrlhf="entropy_loss_coef", note="the loss has no entropy term"),
    Row("", trl="reward_weights", note="a run has one reward: weigh the parts in your own function"),
    Row("", trl="min_p repetition_penalty", note="answers are drawn from the whole distribution, which is trained"),
    Row(
        "",
        verl="data.prompt_key data.reward_fn_key",
        openrlhf="input_key label_key apply_chat_template",
        note="the columns are `prompt` and `answer`; messages go through the chat template",
    ),
    Row(
        "",
        verl="trainer.logger trainer.project_name trainer.experiment_name",
        transformers="report_to run_name logging_dir logging_steps",
        openrlhf="use_wandb wandb_project use_tensorboard logging_steps",
        note="every update is in metrics.jsonl of the run folder, and `dapo plot RUN` draws it",
    ),
    Row(
        "",
        verl="rollout.name rollout.mode",
        trl="use_vllm vllm_mode",
        openrlhf="vllm_num_engines vllm_sync_backend",
        note="answers are written by the built-in engine",
    ),
    Row(
        "",
        verl="actor.strategy actor.fsdp_config.param_offload",
        transformers="fsdp deepspeed local_rank",
        openrlhf="zero_stage adam_offload",
        note="this version trains in one process",
    ),
    Row(
        "",
        verl="model.lora_rank model.lora_alpha",
        trl="use_peft lora_r lora_alpha",
        openrlhf="lora_rank lora_alpha",
        note="all weights are trained",
    ),
    Row(
        "",
        verl="model.use_remove_padding actor.use_dynamic_bsz",
        openrlhf="packing_samples use_dynamic_batch",
        note="answers are always packed, without padding",
    ),
)


@dataclass(frozen=True)
class Peer:
    """A name that was recognised."""

    name: str
    """As the table has it."""
    systems: tuple[str, ...]
    row: Row


def find(typed: str) -> Peer | None:
    """The thing that a name of another system stands for; typed: with dashes or underscores, leading `--` or `+`."""
    wanted = plain(typed)
    for fits in (_same, _same_end):
        for row in ROWS:
            for name in _names(row):
                if fits(wanted, name):
                    systems = tuple(SYSTEMS[key] for key in SYSTEMS if name in getattr(row, key).split())
                    return Peer(name, systems, row)
    return None


def explain(peer: Peer, known: Collection[str], typed: str, value: str = "", *, flags: bool) -> tuple[str, str]:
    """Problem and fix for a person who typed a peer's name.

    known: the settings that there are in this place. value: what was typed for it. flags: whether settings are written
    as flags or as recipe keys.
    """
    whose = " and ".join(f"{system}'" if system.endswith("s") else f"{system}'s" for system in peer.systems)
    settings = [as_flag(name) if flags else name for name in peer.row.here.split() if name in known]
    note = peer.row.note
    if not settings:
        return f"{typed} is {whose} name; here there is no such setting", "leave it out" + (f": {note}" if note else "")
    joined = ", ".join(settings)
    fix = f"use {joined} ({note})" if note else f"write {joined} {value}" if flags and value else f"use {joined}"
    return f"{typed} is {whose} name; here it is {joined}", fix


def all_names() -> list[str]:
    """Every name of every system."""
    return [name for row in ROWS for name in _names(row)]


def plain(typed: str) -> str:
    """A name as the table has it: lower case, underscores, without leading signs and verl's first part."""
    return typed.lstrip("-+~").replace("-", "_").lower().removeprefix(VERL_PREFIX)


def markdown() -> str:
    """The table of docs/algorithm.md."""
    lines = ["| here | " + " | ".join(SYSTEMS.values()) + " | |", "|---|" + "---|" * (len(SYSTEMS) + 1)]
    for row in ROWS:
        cells = [" ".join(f"`{name}`" for name in getattr(row, field.name).split()) for field in fields(row)[:-1]]
        lines.append("| " + " | ".join([*(cell or "-" for cell in cells), row.note]) + " |")
    return "\n".join(lines) + "\n"


def _names(row: Row) -> list[str]:
    """Every name that other systems have for it, once."""
    return list(dict.fromkeys(name for key in SYSTEMS for name in getattr(row, key).split()))


def _same(wanted: str, name: str) -> bool:
    return wanted == name


def _same_end(wanted: str, name: str) -> bool:
    """`optim.lr` is `actor.optim.lr`, and `clip_ratio_low` is `actor.clip_ratio_low`; `enable` alone says nothing."""
    return name.endswith("." + wanted) and ("." in wanted or "_" in wanted)


def as_flag(setting: str) -> str:
    return "--" + setting.replace("_", "-")
