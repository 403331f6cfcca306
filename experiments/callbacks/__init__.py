"""Callbacks of the Trainer.

A checkpoint is written last, so that it includes the metrics of its own step. Lightning has its own
version of most of these callbacks; each is replaced for a reason:

* ``ModelCheckpoint`` writes in place, so a crash can leave half a file; it does not wait for a
  validation that is due at the same step; and it cannot tell regular checkpoints, which are
  averaged, from those written at a stop.
* ``CSVLogger`` writes after the step's checkpoint: a run killed in between would lack the line.
* The progress bar is meant for a terminal. A log needs a line now and then, and other processes
  read ``progress.json``.
* Lightning's handling of signals requeues SLURM jobs. Here a signal ends the run after a
  checkpoint, on all ranks at the same step.
* The distributed sampler distributes single sentences. Batches here are planned by tokens, and a
  resumed run continues in the middle of an epoch (:mod:`transformer.data.batches`).
* Precision and clipping belong to :class:`transformer.training.module.TransformerModule`, so that
  any Trainer gives the same training.
"""
