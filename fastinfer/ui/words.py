"""The page's fixed words in English and Chinese. Pure data, and how gradio and the view get it.

Gradio translates `label`, `info`, `placeholder` and a button's `value` in the browser (`gr.I18n`,
6.31); choices of a radio or a dropdown it doesn't. The view's own words travel as a table that its
script looks up by the same rule. What a run says while it lasts is English in both.
"""

from __future__ import annotations

import gradio as gr
from gradio.i18n import I18nData

from fastinfer.ui import labels

CHINESE_LOCALES = ("zh-CN", "zh-TW")  # the names that gradio knows

# Chinese by key: the form's names and help, groups, then the view.
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
    "fi_origin_draft": "草稿",
    "fi_origin_intermediate": "中间层",
    "fi_origin_resampled": "重采样",
    "fi_origin_bonus": "奖励",
    "fi_origin_target": "目标",
    "fi_figure_ttft": "首词元",
    "fi_figure_tpot": "每词元",
    "fi_figure_speed": "速度",
    "fi_figure_speedup": "对比基线",
    "fi_figure_length": "每次目标前向的词元数",
    "fi_figure_accepted.intermediate": "中间层接受率",
    "fi_figure_accepted.target": "目标接受率",
    "fi_figure_drafting": "起草耗时占比",
    "fi_figure_c": "草稿词元成本 (c)",
    "fi_figure_predicted": "预测加速",
    "fi_figure_achieved": "实际加速",
    "fi_figure_kept": "保留的缓存",
    "fi_figure_shadow.kl": "与完整缓存的 KL",
    "fi_figure_shadow.top1": "最可能词元一致",
    "fi_chart_gamma": "每轮起草长度 γ",
    "fi_chart_cache": "KV 缓存",
    "fi_chart_tpot": "每词元时间",
    "fi_panel_acceptance": "按块内位置的接受率",
    "fi_panel_costs": "预测与实测",
    "fi_panel_models": "模型",
    "fi_tool_refused": "被拒草稿",
    "fi_tool_spaces": "空白符",
    "fi_tool_link": "复制链接",
    "fi_placeholder": "文本显示在这里,每个词元按来源着色。",
}


def word(key: str) -> I18nData:
    """A word of the form, translated in the browser. `key` is a field's name."""
    return I18nData(f"fi_{key}")


def english() -> dict[str, str]:
    """Every key of the form's words in English."""
    words: dict[str, str] = {}
    for name, label in labels.FIELD_WORDS.items():
        words |= {f"fi_{name}": label.name, f"fi_{name}_help": label.help}
    return words | {f"fi_group_{name}": text for name, text in labels.GROUPS.items()}


def translations() -> gr.I18n:
    """For gradio's `i18n`. Other languages see English."""
    return gr.I18n(en=english(), **dict.fromkeys(CHINESE_LOCALES, CHINESE))
