"""The page's words in English and Chinese, and how gradio and the views get them.

Gradio translates `label`, `info`, `placeholder`, a button's `value` and the words of choices in
the browser (`gr.I18n`, 6.31). What the views say is in assets/chinese.json by the English: single
words, and sentences with holes. A view's script looks a text up whole, then as a sentence whose
holes `{}` take anything, which is looked up in its turn; the Chinese puts them back by number. What
has no entry stays English. No text of a model or a person is looked up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.i18n import I18nData

from fastinfer.ui import labels

VIEW_WORDS = Path(__file__).resolve().parents[2] / "assets" / "chinese.json"
CHINESE_LOCALES = ("zh-CN", "zh-TW")  # the names that gradio knows

# Chinese by key: the form's names and help, then buttons, groups and tabs.
CHINESE: dict[str, str] = {
    "fi_prompt": "提示",
    "fi_prompt_help": "模型续写提示,不回答它。",
    "fi_method": "方法",
    "fi_method_help": "缓存完整时,各方法的文本都服从目标模型的分布。",
    "fi_draft": "草稿来源",
    "fi_draft_help": "小模型、前文中的文本,或使用小缓存的目标模型。",
    "fi_intermediate": "中间层",
    "fi_intermediate_help": "仅用于级联:一个模型,或使用小缓存的目标模型。",
    "fi_rule": "接受规则",
    "fi_rule_help": "coupled:同一种子给出同一文本,与草稿和 γ 无关。",
    "fi_gamma_policy": "γ 策略",
    "fi_gamma_policy_help": "cost_aware 只在划算时起草。",
    "fi_gamma": "γ",
    "fi_gamma_help": "每轮。",
    "fi_gamma_min": "γ 下限",
    "fi_gamma_min_help": "留空:由策略定。",
    "fi_gamma_max": "γ 上限",
    "fi_gamma_max_help": "至多 64。",
    "fi_gamma_threshold": "阈值",
    "fi_gamma_threshold_help": "仅 confidence。",
    "fi_inner_gamma": "内层 γ",
    "fi_inner_gamma_help": "仅级联。",
    "fi_rounds": "内层轮数",
    "fi_rounds_help": "仅级联。",
    "fi_max_new_tokens": "新词元数",
    "fi_max_new_tokens_help": "至多。",
    "fi_temperature": "温度",
    "fi_temperature_help": "0 为贪心。",
    "fi_top_k": "Top-k",
    "fi_top_k_help": "0 为关闭。",
    "fi_top_p": "Top-p",
    "fi_top_p_help": "1 为关闭。",
    "fi_min_p": "Min-p",
    "fi_min_p_help": "0 为关闭。",
    "fi_typical_p": "Typical",
    "fi_typical_p_help": "1 为关闭。",
    "fi_repetition_penalty": "重复惩罚",
    "fi_repetition_penalty_help": "1 为关闭。",
    "fi_seed": "种子",
    "fi_seed_help": "留空:随机。",
    "fi_stop": "停止文本",
    "fi_stop_help": r"每行一个;\n 表示换行。最先出现者结束运行。",
    "fi_press": "压缩方法",
    "fi_press_help": "选择保留的条目:在提示之后,或每隔若干词元。",
    "fi_compression_ratio": "比例",
    "fi_compression_ratio_help": "移除。",
    "fi_max_cache_tokens": "预算",
    "fi_max_cache_tokens_help": "或条目数。",
    "fi_press_interval": "间隔",
    "fi_press_interval_help": "或一次。",
    "fi_press_on": "作用于",
    "fi_press_on_help": "作用于目标模型会改变文本;其他只影响速度。",
    "fi_press_positions": "位置",
    "fi_press_positions_help": "in_cache 允许文本超出模型上下文。",
    "fi_press_sinks": "起始词元",
    "fi_press_sinks_help": "始终保留。",
    "fi_shadow_every": "对照测量",
    "fi_shadow_every_help": "每 n 轮;0 为关闭。",
    "fi_group_drafting": "起草",
    "fi_group_sampling": "更多采样与停止文本",
    "fi_group_cache": "KV 缓存",
    "fi_group_examples": "示例",
    "fi_group_generate": "生成",
    "fi_group_stop_run": "停止",
    "fi_compare_rule": "接受规则",
    "fi_compare_rule_help": "coupled:任何温度下各列文本都相同。",
    "fi_kind": "方法",
    "fi_kind_b": "B:方法",
    "fi_kind_b_help": "A 是基线:仅目标模型。",
    "fi_kind_c": "C:方法",
    "fi_kind_press": "压缩方法",
    "fi_kind_press_help": "让一个模型使用更小的 KV 缓存。",
    "fi_kind_press_on": "作用于",
    "fi_kind_ratio": "移除比例",
    "fi_kind_more": "其他选项",
    "fi_kind_more_help": "每行一个,用命令行中的名称。",
    "fi_draws": "抽样次数",
    "fi_wrong": "使用错误规则",
    "fi_wrong_help": "拒绝之后从目标分布抽样,而不是从残差分布抽样。",
    "fi_presses": "压缩方法",
    "fi_ratios": "从缓存移除的比例",
    "fi_file": "其他文本(.txt 或 .md)",
    "fi_window": "窗口",
    "fi_window_help": "词元。",
    "fi_windows": "窗口数",
    "fi_windows_help": "至多。",
    "fi_every": "压缩间隔",
    "fi_every_help": "词元。",
    "fi_methods": "方法",
    "fi_prompts": "提示",
    "fi_lead": "提示词元数",
    "fi_lead_help": "至多。",
    "fi_exactly": "新词元数",
    "fi_exactly_help": "恰好。",
    "fi_repeats": "重复次数",
    "fi_bench_more": "其他选项",
    "fi_bench_more_help": "每行一个,用于所有方法,用命令行中的名称。",
    "fi_preset": "预设",
    "fi_preset_help": "本机没有时会下载。",
    "fi_choice_method_autoregressive": "自回归:仅目标模型",
    "fi_choice_method_speculative": "推测解码:草稿,然后目标",
    "fi_choice_method_cascade": "级联:草稿、中间层、目标",
    "fi_choice_kind_autoregressive": "自回归",
    "fi_choice_kind_speculative": "推测解码",
    "fi_choice_kind_prompt-lookup": "提示查找",
    "fi_choice_kind_lookup-first": "先查找,再草稿",
    "fi_choice_kind_cascade": "级联",
    "fi_choice_kind_none": "无第三列",
    "fi_group_third": "C:第三列",
    "fi_group_compare": "比较",
    "fi_group_again": "再来 ×5",
    "fi_group_prove": "验证",
    "fi_group_measure": "测量",
    "fi_group_load": "加载",
    "fi_group_tab_generate": "生成",
    "fi_group_tab_compare": "比较",
    "fi_group_tab_proof": "验证",
    "fi_group_tab_quality": "质量",
    "fi_group_tab_benchmark": "基准测试",
    "fi_group_tab_models": "模型",
    "fi_group_intro": "小模型先猜,大模型检验,文本仍服从大模型的分布。",
}


def word(key: str) -> I18nData:
    """A word of the form, translated in the browser. `key` is a field's name."""
    return I18nData(f"fi_{key}")


def field_words(key: str) -> dict[str, Any]:
    """A widget's label and help by the field's key."""
    label = (labels.FIELD_WORDS | labels.TAB_WORDS)[key]
    return {"label": word(key), "info": word(f"{key}_help") if label.help else None}


def english() -> dict[str, str]:
    """Every key of the form's words in English."""
    words: dict[str, str] = {}
    for name, label in (labels.FIELD_WORDS | labels.TAB_WORDS).items():
        words[f"fi_{name}"] = label.name
        if label.help:
            words[f"fi_{name}_help"] = label.help
    words |= {f"fi_choice_{name}": text for name, text in labels.CHOICES.items()}
    return words | {f"fi_group_{name}": text for name, text in labels.GROUPS.items()}


def view_words() -> dict[str, Any]:
    """What a view's script needs to speak Chinese, JSON-ready."""
    return {"locales": CHINESE_LOCALES, **json.loads(VIEW_WORDS.read_text(encoding="utf-8"))}


def translations() -> gr.I18n:
    """For gradio's `i18n`. Other languages see English."""
    return gr.I18n(en=english(), **dict.fromkeys(CHINESE_LOCALES, CHINESE))
