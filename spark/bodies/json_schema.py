"""check_json_schema: which schemas JSON bodies can be read by, as `from_json` has it.

A body may lack any column, and a value of another type is null: so no column may be NOT NULL, of which a null
fails Spark's tasks. Keys of a map are strings.
"""

from __future__ import annotations

from pyspark.sql import types as t

from thermocline.remoting.errors import InvalidRequestError

_TYPES = (
    *(t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType, t.BooleanType),
    *(t.StringType, t.VarcharType, t.CharType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType),
)


def check_json_schema(kind: t.DataType, *, path: str = "") -> None:
    """Pass for a type that JSON values can be read as; `path` names the column in errors.

    Raises:
        InvalidRequestError: A column is NOT NULL, a map has other keys than strings, or a type is none of JSON's.
    """
    if isinstance(kind, t.StructType):
        for field in kind.fields:
            name = f"{path}.{field.name}" if path else field.name
            if not field.nullable:
                raise InvalidRequestError(
                    "a JSON body may lack any of its columns: leave NOT NULL out", option="bodySchema", column=name
                )
            check_json_schema(field.dataType, path=name)
    elif isinstance(kind, t.ArrayType):
        check_json_schema(kind.elementType, path=f"{path}[]")
    elif isinstance(kind, t.MapType):
        if not isinstance(kind.keyType, t.StringType):
            raise InvalidRequestError("the keys of a map are strings in JSON", option="bodySchema", column=path)
        check_json_schema(kind.valueType, path=f"{path}{{}}")
    elif not isinstance(kind, _TYPES):
        raise InvalidRequestError(
            "no value of a JSON body is of this type", option="bodySchema", column=path, type=kind.simpleString()
        )
