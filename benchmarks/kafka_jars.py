"""Kafka jars: an Apache Kafka broker as a folder of jars, brought by Maven once and kept in `.cache/kafka/`.

Data path   Maven -> **kafka_jars** -> `kafka_peer`
Owns        the Kafka version that is compared with, and the cache folder
Leaves      starting a broker from the jars to `kafka_peer`
Invariant   a cache folder with the stamp file is complete; one without it is filled again
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
LOG4J_VERSION: Final = "2.24.3"
DEPENDENCY_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
CACHE: Final = Path(__file__).resolve().parent.parent / ".cache" / "kafka"
MAVEN_TIMEOUT_S: Final = 600

# kafka_2.13 names only the logging interface; without log4j-core the broker's logging controller can't load.
DEPENDENCIES: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-api", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)


class PeerUnavailable(Exception):
    """This peer can't run here; the text says what is missing."""


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailable("no `java` on the path; Apache Kafka needs Java 17 or later")
    return found


def kafka_jars() -> Path:
    """The folder with the broker's jars, filled with Maven when it isn't yet."""
    folder = CACHE / KAFKA_VERSION
    stamp = folder / ".complete"
    if not stamp.exists():
        _fill(folder)
        stamp.touch()
    return folder


def _fill(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no `mvn` on the path; Apache Kafka's jars come from Maven Central")
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    pom.write_text(_pom())
    goal = f"{DEPENDENCY_PLUGIN}:copy-dependencies"
    command = [maven, "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"Maven took longer than {MAVEN_TIMEOUT_S} s to bring Apache Kafka's jars") from error
    if done.returncode != 0:
        reason = next((line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line), "no reason given")
        raise PeerUnavailable(f"Maven could not bring Apache Kafka's jars: {reason[:300]}")


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in DEPENDENCIES
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>streamhouse</groupId><artifactId>benchmark-peer</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
