"""The setting `routingClusters`: its values, and those that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from thermocline.proxy.routing import parse_clusters
from thermocline.proxy.routing.named_clusters import CLUSTERS_MAX
from thermocline.remoting.errors import SettingError


def test_no_text_is_no_cluster() -> None:
    assert parse_clusters("  ") == ()


def test_a_cluster_has_its_addresses_name_keys_and_tls(tmp_path: Path) -> None:
    tls_path = tmp_path / "tls.properties"
    tls_path.write_text("tls.enable=true\ntls.client.trustCertPath=/etc/ca.pem\n")
    text = f"""[
      {{"name": "east", "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876"}},
      {{"name": "blue", "namesrvAddr": "10.0.0.3:9876", "rocketMQClusterName": "Blue",
        "credentials": {{"accessKey": "proxy", "secretKey": "hidden"}}, "tlsConfigFile": "{tls_path}"}}
    ]"""
    east, blue = parse_clusters(text)
    assert (east.name, east.namesrv, east.cluster_name) == (
        "east",
        ("10.0.0.1:9876", "10.0.0.2:9876"),
        "DefaultCluster",
    )
    assert (east.credentials, east.has_own_tls) == (None, False)
    assert blue.cluster_name == "Blue"
    assert blue.credentials is not None
    assert blue.credentials.secret_key == "hidden"
    assert "hidden" not in repr(blue)
    assert blue.tls is not None
    assert blue.tls.ca_file == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("east", "is no JSON list of clusters"),
        ('{"name": "east"}', "is no JSON list of clusters"),
        ('[{"name": "east"}]', "missing required field `namesrvAddr`"),
        ('[{"name": "east", "namesrvAddr": "a:1", "more": 1}]', "unknown field `more`"),
        ('[{"name": "a@b", "namesrvAddr": "a:1"}]', "a name has 1 to 64 letters, digits, - or _"),
        ('[{"name": "default", "namesrvAddr": "a:1"}]', "two clusters have one name"),
        ('[{"name": "e", "namesrvAddr": "a:1"}, {"name": "e", "namesrvAddr": "b:1"}]', "two clusters have one name"),
        ('[{"name": "e", "namesrvAddr": "nowhere"}]', "a NameServer address is host:port"),
        ('[{"name": "e", "namesrvAddr": ""}]', "no NameServer address"),
        ('[{"name": "e", "namesrvAddr": "http://a/b"}]', "namesrvAddr has to be a list of addresses"),
        ('[{"name": "e", "namesrvAddr": "a:1", "tlsConfigFile": "/no/such/file"}]', "a TLS file cannot be read"),
    ],
)
def test_what_is_no_list_of_clusters_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(SettingError) as raised:
        parse_clusters(text)
    assert sentence in raised.value.message


def test_there_is_a_bound() -> None:
    def text(count: int) -> str:
        return "[" + ",".join(f'{{"name": "c{number}", "namesrvAddr": "a:1"}}' for number in range(count)) + "]"

    assert len(parse_clusters(text(CLUSTERS_MAX))) == CLUSTERS_MAX
    with pytest.raises(SettingError, match=f"more than {CLUSTERS_MAX} clusters"):
        parse_clusters(text(CLUSTERS_MAX + 1))
