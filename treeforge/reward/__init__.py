"""The reward model that the data is for: train it, score solutions with it, choose by it, measure it.

HRM paper: arXiv 2503.13551. Needs the extra `train` (torch, transformers, peft), which is imported only where a model
is trained or loaded.
"""
