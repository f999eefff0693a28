"""Which Chromium the browser tests take, and when they refuse. No network: apt and dpkg are small scripts here."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.e2e import chromium
from tests.e2e.chromium import ChromiumUnavailable, find_or_fetch
from tests.servers import debian as debian_packages

SNAP_STUB = """
Command '/usr/bin/chromium-browser' requires the chromium snap to be installed.
Please install it with:

snap install chromium
"""
SIMULATION = """\
Reading package lists...
The following NEW packages will be installed:
  chromium libogg0
Inst libogg0 (1.3.5-3 Debian:12.15/oldstable [amd64])
Inst libnss3 [2:3.87.1-1] (2:3.87.1-1+deb12u4 Debian-Security:12/oldstable-security [amd64])
Inst chromium (156.0.8078.79-1~deb12u1 Debian-Security:12/oldstable-security [amd64])
Conf libogg0 (1.3.5-3 Debian:12.15/oldstable [amd64])
Conf libvpx7 (1.12.0-1 Debian:12.15/oldstable [amd64])
"""
IN_THE_PACKAGE = "usr/lib/chromium/chromium"
BROWSER = "#!/bin/sh\necho 'Chromium 156.0.8078.79 '\n"
APT_GET = """\
#!/bin/sh
case " $* " in
  *" update "*) ;;
  *" -s "*) echo 'Inst chromium (156 Debian:12 [amd64])' ;;
  *" --print-uris "*) echo "'uri' chromium.deb 81000000 SHA256:0" ;;
  *" download "*) : > chromium.deb ;;
esac
"""
DPKG = f"""\
#!/bin/sh
mkdir -p "$3/usr/lib/chromium" && cat > "$3/usr/lib/chromium/chromium" <<'END'
{BROWSER}END
chmod +x "$3/usr/lib/chromium/chromium"
"""


def put(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    return path


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The whole of PATH: a machine with a few tools and no browser."""
    path = tmp_path / "bin"
    for tool in ("cat", "mkdir", "chmod", "sleep", "ldd"):
        # Not a link: a test that replaces a tool here would write through it to the machine's own.
        put(path / tool, f'#!/bin/sh\nexec {shutil.which(tool)} "$@"\n')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.delenv("LUMINET_CHROMIUM", raising=False)
    return path


@pytest.fixture
def debian(bin_dir: Path) -> Path:
    put(bin_dir / "apt-get", APT_GET)
    put(bin_dir / "dpkg", DPKG)
    return bin_dir


@pytest.mark.parametrize(
    "line",
    ["Chromium 156.0.8078.79 ", "Google Chrome 136.0.7103.113", "Google Chrome for Testing 136.0.7103.113"],
)
def test_a_version_line_is_a_browser(line: str) -> None:
    assert chromium.is_browser_version(line)


def test_a_snap_stub_is_not_a_browser(subtests: pytest.Subtests) -> None:
    cases: list[str] = [*SNAP_STUB.splitlines(), "chromium 1.2", "Chromium", "ChromeDriver 136.0.7103.113"]
    for line in cases:
        with subtests.test(msg=line):
            assert not chromium.is_browser_version(line)


def test_only_what_apt_would_install_is_fetched() -> None:
    assert debian_packages.packages_to_fetch(SIMULATION) == ["libogg0", "libnss3", "chromium"]


def test_a_download_is_the_sum_of_its_files() -> None:
    uris = "Reading package lists...\n'uri-1' a.deb 1500 SHA256:0\n'uri-2' b_2%3a3.deb 500 SHA256:1\n"
    assert debian_packages.download_bytes(uris) == 2000


def test_an_error_is_quoted_before_a_warning() -> None:
    assert debian_packages.first_complaint("Reading...\nW: old lists\nE: Unable to locate package\n") == (
        "E: Unable to locate package"
    )


def test_a_warning_is_quoted_before_chatter() -> None:
    assert debian_packages.first_complaint("W: Failed to fetch\nBuilding dependency tree...\n") == "W: Failed to fetch"


def test_libraries_that_the_loader_cannot_find_are_named() -> None:
    ldd = "\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\tlibpulsecommon-16.1.so => not found\n\tlinux-vdso.so.1 (0x7f)\n"
    assert chromium.missing_libraries(ldd) == ["libpulsecommon-16.1.so"]


def test_every_directory_with_a_library_is_searched(tmp_path: Path) -> None:
    for name in ("lib/libogg.so.0.8.5", "lib/pulseaudio/libpulsecommon.so", "share/doc/notes.so.txt", "bin/chromium"):
        put(tmp_path / name, "")
    assert chromium.library_dirs(tmp_path) == [tmp_path / "lib", tmp_path / "lib/pulseaudio"]


def test_unpacked_fonts_are_named_in_the_font_configuration() -> None:
    text = chromium.fonts_conf(Path("/c & d/copy"), Path("/c & d"))
    assert "<dir>/c &amp; d/copy/usr/share/fonts</dir>" in text


@pytest.mark.parametrize("kind", ["absent", "directory", "not executable"])
def test_a_bogus_variable_is_named_with_its_value(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "browser"
    if kind == "directory":
        path.mkdir()
    if kind == "not executable":
        path.write_text(BROWSER)
    monkeypatch.setenv("LUMINET_CHROMIUM", str(path))
    with pytest.raises(ChromiumUnavailable, match=f"LUMINET_CHROMIUM={path} is not an executable file"):
        find_or_fetch(tmp_path / "cache")


def test_the_variable_wins_over_path(bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bin_dir / "chromium", BROWSER)
    mine = put(tmp_path / "mine", BROWSER)
    monkeypatch.setenv("LUMINET_CHROMIUM", str(mine))
    assert find_or_fetch(tmp_path / "cache").executable == mine


def test_a_stub_on_path_is_passed_over_for_a_browser(bin_dir: Path, tmp_path: Path) -> None:
    put(bin_dir / "chromium-browser", f"#!/bin/sh\ncat >&2 <<'END'\n{SNAP_STUB}END\nexit 1\n")
    chrome = put(bin_dir / "google-chrome", "#!/bin/sh\necho 'Google Chrome 136.0.7103.113'\n")
    found = find_or_fetch(tmp_path / "cache")
    assert (found.executable, found.origin) == (chrome, "system")


@pytest.mark.parametrize(
    "script", ["echo 'Chromium 156.0.1.2'; exit 1", "sleep 3; echo 'Chromium 156.0.1.2'"], ids=["fails", "hangs"]
)
def test_a_command_that_does_not_answer_is_passed_over(
    script: str, bin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "VERSION_TIMEOUT_SECONDS", 0.2)
    put(bin_dir / "chromium", f"#!/bin/sh\n{script}\n")
    with pytest.raises(ChromiumUnavailable):
        find_or_fetch(tmp_path / "cache")


def test_without_apt_the_message_says_what_to_do(bin_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ChromiumUnavailable, match=r"no apt-get and no dpkg .*apt-get install chromium.*LUMINET_CHROMIUM"
    ):
        find_or_fetch(tmp_path / "cache")


def test_a_full_disk_is_noticed_before_the_download(
    debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(debian / "apt-get", f"#!/bin/sh\n: > {tmp_path}/ran\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=699_000_000))
    with pytest.raises(ChromiumUnavailable, match="needs 700 MB, 699 MB are free"):
        find_or_fetch(tmp_path / "cache")
    assert not (tmp_path / "ran").exists()


def test_a_bare_machine_needs_more_room(debian: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(debian / "apt-get", APT_GET.replace("81000000", "209000000"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=800_000_000))
    with pytest.raises(ChromiumUnavailable, match="needs 1045 MB, 800 MB are free"):
        find_or_fetch(tmp_path / "cache")


def test_a_fetched_copy_is_kept_and_not_fetched_twice(debian: Path, tmp_path: Path) -> None:
    first = find_or_fetch(tmp_path / "cache")
    (debian / "apt-get").unlink()
    assert find_or_fetch(tmp_path / "cache").executable == first.executable
    assert first.origin == "unpacked"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["lock", "unpacked"]


def test_the_download_is_announced(debian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_or_fetch(tmp_path / "cache")
    assert "Fetching Debian's Chromium: 1 packages, 81 MB" in capsys.readouterr().err


def test_a_copy_without_its_marker_is_fetched_again(debian: Path, tmp_path: Path) -> None:
    half = put(tmp_path / "cache/unpacked/root" / IN_THE_PACKAGE, BROWSER + "# half\n")
    assert find_or_fetch(tmp_path / "cache").executable == half
    assert "half" not in half.read_text()


def test_a_copy_that_no_longer_starts_is_fetched_again(debian: Path, tmp_path: Path) -> None:
    found = find_or_fetch(tmp_path / "cache")
    put(found.executable, "#!/bin/sh\nexit 127\n")
    find_or_fetch(tmp_path / "cache")
    assert found.executable.read_text() == BROWSER


def test_a_failed_unpack_leaves_nothing_behind(debian: Path, tmp_path: Path) -> None:
    put(debian / "dpkg", DPKG + "echo 'dpkg-deb: error: unexpected end of file' >&2\nexit 2\n")
    with pytest.raises(ChromiumUnavailable, match="unexpected end of file"):
        find_or_fetch(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_a_browser_that_does_not_start_is_never_cached(debian: Path, tmp_path: Path) -> None:
    put(debian / "dpkg", DPKG.replace("echo 'Chromium", "exit 127; echo 'Chromium"))
    put(debian / "ldd", "#!/bin/sh\necho ' libogg.so.0 => not found'\n")
    with pytest.raises(ChromiumUnavailable, match=r"missing: libogg\.so\.0"):
        find_or_fetch(tmp_path / "cache")
    assert not (tmp_path / "cache/unpacked").exists()


def test_what_an_interrupted_fetch_left_is_swept_away(debian: Path, tmp_path: Path) -> None:
    put(tmp_path / "cache/fetch-dead/copy/root" / IN_THE_PACKAGE, BROWSER)
    find_or_fetch(tmp_path / "cache")
    assert not (tmp_path / "cache/fetch-dead").exists()


def test_a_machine_whose_apt_has_no_chromium_hears_why(debian: Path, tmp_path: Path) -> None:
    put(debian / "apt-get", "#!/bin/sh\necho 'E: Unable to locate package chromium' >&2\nexit 100\n")
    with pytest.raises(ChromiumUnavailable, match="Unable to locate package chromium"):
        find_or_fetch(tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_reported(debian: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(ChromiumUnavailable, match="the cache is unusable"):
        find_or_fetch(tmp_path / "cache")


def test_the_cache_follows_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert chromium.default_cache_dir() == tmp_path / ".cache/luminet/chromium"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert chromium.default_cache_dir() == tmp_path / "xdg/luminet/chromium"


def test_unpacked_libraries_reach_the_browser_and_only_it(debian: Path, tmp_path: Path) -> None:
    put(debian / "dpkg", DPKG + ': > "$3/usr/lib/chromium/libogg.so.0"\n')
    found = find_or_fetch(tmp_path / "cache")
    assert found.env["LD_LIBRARY_PATH"].split(":")[0] == str(found.executable.parent)
    assert found.env["PATH"] == str(debian)
