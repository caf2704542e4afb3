"""Makes the jar of our Java classes, with their sources; needs a JDK and the jars that a run has fetched for Delta."""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from pathlib import Path

import pyspark

FOLDER = Path(__file__).resolve().parents[1] / "src" / "ematix_flow" / "java"
JAR = FOLDER / "ematix-flow.jar"
CREATED = (1980, 1, 1, 0, 0, 0)
"""The same source gives the same bytes, whenever it is made."""


def main() -> None:
    """Compile every source and put the classes into the jar."""
    own = Path(pyspark.__file__).parent / "jars"
    fetched = Path.home() / ".ivy2.5.2" / "jars"
    class_path = f"{own}/*:{next(fetched.glob('io.delta_delta-storage-*.jar'))}"
    with tempfile.TemporaryDirectory() as folder:
        sources = sorted(map(str, FOLDER.glob("*.java")))
        subprocess.run(["javac", "--release", "17", "-cp", class_path, "-d", folder, *sources], check=True)  # noqa: S607
        with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
            for file in sorted(Path(folder).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(file.relative_to(folder)), CREATED), file.read_bytes())
            for source in sources:
                name, text = f"META-INF/sources/{Path(source).name}", Path(source).read_bytes()
                jar.writestr(zipfile.ZipInfo(name, CREATED), text)


if __name__ == "__main__":
    main()
