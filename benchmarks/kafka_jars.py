"""Kafka jars: an Apache Kafka broker, or its tools, as a folder of jars; Maven brings them once into `.cache/kafka/`.

Data path   Maven -> **kafka_jars** -> `kafka_peer`, `tests/java`
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

Dependencies = tuple[tuple[str, str, str], ...]
Excluded = tuple[tuple[str, str], ...]

# kafka_2.13 names only the logging interface; without log4j-core the broker's logging controller can't load.
DEPENDENCIES: Final = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-api", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
)

TOOLS: Final = (("org.apache.kafka", "kafka-tools", KAFKA_VERSION), *DEPENDENCIES)
SPARK_CONNECTOR: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
"""Spark's own connector for Kafka, without what Spark has itself. Not every version can be had of each of these; later
Sparks take earlier ones."""
EVERYTHING: Final = (("*", "*"),)
CONNECT: Final = ("connect-api", "connect-json", "connect-runtime", "connect-transforms")
"""What the tools name and none of those used here needs: a web server and its hundred jars."""
NO_CONNECT: Final = tuple(("org.apache.kafka", artifact) for artifact in CONNECT)


class PeerUnavailable(Exception):
    """This peer can't run here; the text says what is missing."""


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise PeerUnavailable("no `java` on the path; Apache Kafka needs Java 17 or later")
    return found


def kafka_jars() -> Path:
    """The folder with the broker's jars, filled with Maven when it isn't yet."""
    return _filled(CACHE / KAFKA_VERSION, DEPENDENCIES)


def kafka_tool_jars() -> Path:
    """The folder with the jars of the Java client and of Kafka's command-line tools."""
    return _filled(CACHE / f"{KAFKA_VERSION}-tools", TOOLS)


def spark_connector_jars() -> list[Path]:
    """The jars that Spark needs to read from Kafka."""
    _, _, version = SPARK_CONNECTOR[0]
    return sorted(_filled(CACHE / f"spark-{version}", SPARK_CONNECTOR, without=EVERYTHING).glob("*.jar"))


def _filled(folder: Path, dependencies: Dependencies, without: Excluded = NO_CONNECT) -> Path:
    stamp = folder / ".complete"
    if not stamp.exists():
        _fill(folder, dependencies, without)
        stamp.touch()
    return folder


def _fill(folder: Path, dependencies: Dependencies, without: Excluded) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("no `mvn` on the path; Apache Kafka's jars come from Maven Central")
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    pom.write_text(_pom(dependencies, without))
    goal = f"{DEPENDENCY_PLUGIN}:copy-dependencies"
    command = [maven, "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"Maven took longer than {MAVEN_TIMEOUT_S} s to bring Apache Kafka's jars") from error
    if done.returncode != 0:
        reason = next((line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line), "no reason given")
        raise PeerUnavailable(f"Maven could not bring Apache Kafka's jars: {reason[:300]}")


def _pom(dependencies: Dependencies, without: Excluded) -> str:
    excluded = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{artifact}</artifactId></exclusion>"
        for group, artifact in without
    )
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<exclusions>{excluded}</exclusions></dependency>"
        for group, artifact, version in dependencies
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>streamhouse</groupId><artifactId>benchmark-peer</artifactId><version>1</version>"
        f"<dependencies>{listed}</dependencies></project>\n"
    )
