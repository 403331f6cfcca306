"""The training of section 5 as a LightningModule.

Batches enter, gradients and logged metrics leave; checkpoints are averaged and resumed here. Of the
data it knows only ``Batch``.
"""
