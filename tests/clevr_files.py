"""CLEVR's layout with traced scenes in it."""

import json
from pathlib import Path

from PIL import Image

from picaset.lab.data.folders import cache_folder
from picaset.lab.data.scenes import PROPERTIES, Scenes
from picaset.lab.data.traced_scenes import load_traced_scenes

PUBLISHED = {"license": "Creative Commons Attribution (CC BY 4.0)", "version": "1.0", "date": "2/14/2017"}


def write_clevr(folder: Path, num_train: int = 4, num_val: int = 3, info: object = PUBLISHED) -> dict[str, Scenes]:
    """Traced scenes as 96 x 64 images, training as JPEG and validation as PNG; returns what was written."""
    written = dict[str, Scenes]()
    for part, count, seed, suffix in (("train", num_train, 5, "jpg"), ("val", num_val, 6, "png")):
        scenes = load_traced_scenes(count, seed=seed, size=64, folder=cache_folder())
        (folder / "images" / part).mkdir(parents=True)
        described = []
        for index in range(count):
            name = f"CLEVR_{part}_{index:06d}.{suffix}"
            wide = Image.fromarray(scenes.images[index]).resize((96, 64), Image.Resampling.BICUBIC)
            wide.save(folder / "images" / part / name, **({"quality": 95} if suffix == "jpg" else {}))
            described.append({"image_filename": name, "image_index": index, "objects": objects_of(scenes, index)})
        (folder / "scenes").mkdir(exist_ok=True)
        (folder / "scenes" / f"CLEVR_{part}_scenes.json").write_text(json.dumps({"info": info, "scenes": described}))
        written[part] = scenes
    return written


def objects_of(scenes: Scenes, index: int) -> list[dict]:
    return [
        {
            "3d_coords": [float(value) for value in scenes.coordinates[index, slot]],
            **{
                name: values[scenes.properties[index, slot, number]]
                for number, (name, values) in enumerate(PROPERTIES.items())
            },
            "rotation": 10.0,
            "pixel_coords": [1, 2, 3.0],
        }
        for slot in range(int(scenes.present[index].sum()))
    ]
