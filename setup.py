"""What pyproject.toml cannot say: the motifs of data/motifs go into the wheel as package data."""

from setuptools import find_packages, setup

MOTIFS = "music_transformer.assets.motifs"

setup(
    packages=[*find_packages(include=["music_transformer*"]), MOTIFS],
    package_dir={MOTIFS: "data/motifs"},
)
