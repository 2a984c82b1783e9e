"""Object store in a directory: the embedded default, with the same promises as S3 and no server."""

from thermocline.tiered.stores.file.file_object_store import PARTIAL_FOLDER, FileObjectStore

__all__ = ["PARTIAL_FOLDER", "FileObjectStore"]
