"""All that knows Hydra's and OmegaConf's insides: settings, composing, overrides, mistakes and
names of versions.

No other room reads Hydra's private objects.
"""
