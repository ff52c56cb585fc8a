import pytest

from marpack.torchserve.ts.unit_testing import ModelLoaderFactory, Service

BATCH = [
    {
        "requestId": b"id-0",
        "parameters": [{"name": "data", "value": bytearray(b"x"), "contentType": "image/png"}],
        "headers": [{"name": b"X", "value": b"y"}],
    }
]


def test_a_batch_is_taken_apart_as_handlers_tests_expect():
    (processor,), rows, ids = Service.retrieve_data_for_inference(BATCH)
    assert rows == [{"data": bytearray(b"x")}]
    assert ids == {0: "id-0"}
    assert processor.get_request_properties() == {"data": {"content-type": "image/png"}, "X": "y"}
    with pytest.raises(ValueError, match="no batch"):
        Service.retrieve_data_for_inference(None)


def test_a_loaded_model_answers_in_this_process(make_folder, monkeypatch: pytest.MonkeyPatch):
    folder = make_folder("def handle(data, context):\n    return [context.model_name] if data else None\n")
    monkeypatch.syspath_prepend(str(folder))
    service = ModelLoaderFactory.get_model_loader().load("m", str(folder), "handler.py", None, 1)
    assert service.context.manifest["model"]["modelName"] == "probe"
    assert service.context.system_properties == {
        "model_dir": str(folder), "gpu_id": None, "batch_size": 1, "server_name": "MMS", "server_version": "0.12.0",
        "limit_max_image_pixels": True,
    }  # fmt: skip
    assert service.context.model_yaml_config == {}
    assert bytes(service.predict(BATCH)) == b"m"
    unlimited = ModelLoaderFactory.get_model_loader().load(
        "m", str(folder), "handler.py", 3, 2, limit_max_image_pixels=None
    )
    properties = unlimited.context.system_properties
    assert [properties[name] for name in ("gpu_id", "batch_size", "limit_max_image_pixels")] == [3, 2, False]
