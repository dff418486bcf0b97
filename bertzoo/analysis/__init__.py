"""Looking into models: what they attend to, hold, know and cost."""

from importlib import import_module

# Imported on first use: what counts parameters needs no matplotlib, and what draws needs no model.
_LATER = {
    "ablate_each_head": "heads",
    "ablated": "heads",
    "activation_bytes": "comparison",
    "anisotropy_figure": "charts",
    "attention_maps": "attention",
    "attention_html": "html",
    "attribution_figure": "charts",
    "by_head_figure": "figures",
    "calibration_figure": "charts",
    "cka_matrix": "representations",
    "compare": "comparison",
    "comparison_figure": "charts",
    "encoder_flops": "bertzoo.models.flops",
    "errors_figure": "charts",
    "flops_by_part": "bertzoo.models.flops",
    "gradient_times_attention": "attribution",
    "head_figure": "figures",
    "head_flops": "bertzoo.models.flops",
    "heads_figure": "figures",
    "heat_map": "figures",
    "integrated_gradients": "attribution",
    "layer_anisotropy": "representations",
    "layer_vectors": "representations",
    "layers_figure": "charts",
    "linear_cka": "representations",
    "pca_figure": "scatter",
    "mean_cosine": "representations",
    "least_important_heads": "heads",
    "occlusion": "attribution",
    "pca": "representations",
    "predictions": "confidence",
    "probe": "probing",
    "probe_figure": "charts",
    "prune_heads": "heads",
    "pruning_figure": "charts",
    "Whitening": "representations",
    "word_vectors": "representations",
}

__all__ = [*_LATER]


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module 'bertzoo.analysis' has no attribute {name!r}")
    module = _LATER[name] if "." in _LATER[name] else f"bertzoo.analysis.{_LATER[name]}"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
