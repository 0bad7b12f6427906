"""The real homes that figures are about: where they are, and how they are called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.errors import InputError
from shoal.product.sources.meters.meter_files import read_meters
from shoal.product.sources.meters.quality import Readings, as_readings

FOLDER = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True)
class Homes:
    """A file of real homes, and whose it is."""

    name: str
    file: Path
    source: str  #: who published it, under which license

    @property
    def there(self) -> bool:
        return self.file.is_file()

    def read(self) -> Readings:
        """All readings, repaired as :func:`shoal.read_meters` does."""
        if not self.there:
            raise InputError(f"homes: {self.file.name} is not at hand; name a meter file instead")
        return as_readings(read_meters(self.file))


SWISS = Homes(
    "Swiss",
    FOLDER / "swiss_residential_15min" / "swiss15_clean.parquet",
    "Weigert, Hopf, Weinig and Staake 2020, University of Bamberg, CC BY-SA 4.0",
)
LONDON = Homes(
    "London",
    FOLDER / "london_2013" / "london125.parquet",
    "UK Power Networks, Low Carbon London, London Datastore, CC BY 4.0",
)
EVERY = {"swiss": SWISS, "london": LONDON}
