"""What a model name asks of the upstream: `simulated/chunks=64,burst=16,pace=0.005`.

Pure. A subset of the words of `tidegate simulate`, so that one load runs against either upstream.
"""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """One answer: `chunks` events of `size` bytes of text, `burst` of them in one write.

    The writes are `pace` seconds apart and the first comes `delay` seconds after the request; `endless`
    writes go on until the connection ends.
    """

    chunks: int = 8
    size: int = 8
    burst: int = 1
    pace: float = 0.0
    delay: float = 0.0
    endless: bool = False

    @property
    def model(self) -> str:
        words = [f"{name}={value}" for name, value in self._numbers().items()]
        return "simulated/" + ",".join([*words, "endless"] if self.endless else words)

    def _numbers(self) -> dict[str, float]:
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "endless" and value}


def read_script(model: str) -> Script:
    """The script in a model name. Unknown words raise ValueError: a typo would measure something else."""
    values: dict[str, float] = {}
    endless = False
    for word in filter(None, model.partition("/")[2].split(",")):
        name, _, value = word.partition("=")
        if name == "endless":
            endless = True
        elif name in {"chunks", "size", "burst", "pace", "delay"}:
            values[name] = float(value)
        else:
            raise ValueError(f"unknown word in the model name: {word}")
    return Script(
        chunks=int(values.get("chunks", 8)),
        size=int(values.get("size", 8)),
        burst=int(values.get("burst", 1)),
        pace=values.get("pace", 0.0),
        delay=values.get("delay", 0.0),
        endless=endless,
    )
