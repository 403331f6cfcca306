"""Why `big` stays on a plateau at the scale `small`: its first 3,000 steps, with less dropout."""

from ablations.tables import BASE, Table, row
from transformer.config import override

TABLE = Table(
    name="big-early",
    title="big at its first 3,000 steps",
    base=override(BASE, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, max_steps=25_000),
    rows=(
        row("base"),
        row("p0.1", dropout=0.1),
    ),
)
