"""CelebA's layout with drawn faces in it: real faces appear in no file of the project."""

from pathlib import Path

import numpy as np
from PIL import Image

from picaset.lab.data.drawn_faces import draw_faces
from picaset.lab.data.face_sets import Faces


def write_celeba(folder: Path, num_faces: int = 40) -> Faces:
    """Drawn faces as 178 x 218 JPEG files, with their attributes and parts; returns what was written."""
    faces = draw_faces(num_faces, seed=7)
    (folder / "img_align_celeba").mkdir(parents=True)
    rows, parts = list[str](), list[str]()
    for index, image in enumerate(faces.images):
        name = f"{index + 1:06d}.jpg"
        whole = Image.new("RGB", (178, 218), (90, 120, 150))
        whole.paste(Image.fromarray(image).resize((160, 160), Image.Resampling.BICUBIC), (9, 29))
        whole.save(folder / "img_align_celeba" / name, quality=95)
        rows.append(" ".join([name, *("1" if has else "-1" for has in faces.attributes[index])]))
        parts.append(f"{name} {faces.parts[index]}")
    np.random.default_rng(0).shuffle(parts)  # the lists need not be in one order
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(num_faces), " ".join(faces.names), *rows]) + "\n")
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    return faces
