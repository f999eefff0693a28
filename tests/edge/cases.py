"""Every decision that Luminet's HTTP parsers take about what arrives, as a case: bytes, and what must come back.

A case is data. `<ok>`, `<take>`, `<auth>`, `<body>` and their like stand for what each server understands.
docs/http-edge.md lists the cases (`python -m tests.edge.page`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.edge.steps import ANSWERED, CONTINUED, FIN, PAUSE, RESET, Drip, End, Step

Server = Literal["web", "gateway", "engine", "sidecar"]
SERVERS: Final[tuple[Server, ...]] = ("web", "gateway", "engine", "sidecar")
TAKEN: Final = 0  # the status of a good request with a body, which each server has its own of
ANY: Final = -1  # as often as the server likes


@dataclass(frozen=True, slots=True)
class Expected:
    statuses: tuple[int, ...]
    end: End = "closes"
    interim: int = 0  # how often 100 Continue
    also: tuple[tuple[int, ...], ...] = ()  # other statuses, where it depends on how bytes arrive


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    decision: str  # one sentence of the page
    steps: tuple[Step, ...] = field(repr=False)
    expected: Expected
    by_server: Mapping[Server, Expected] = field(default_factory=dict)
    is_head: bool = False
    by_proxy: Mapping[str, str] = field(default_factory=dict)  # which reads it otherwise, and why that is safe

    def expected_of(self, server: Server) -> Expected:
        return self.by_server.get(server, self.expected)


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    cases: Sequence[Case]


REFUSED: Final = Expected((400,))
TOO_LARGE: Final = Expected((431,))
TIMED_OUT: Final = Expected((408,))
SERVED: Final = Expected((200,), "stays")
SERVED_AND_CLOSED: Final = Expected((200,))
NOT_FOUND: Final = Expected((404,), "stays")
CLOSED: Final = Expected(())
LEFT: Final = Expected((), "left")
BODY_TAKEN: Final = Expected((TAKEN,), "stays")

MERGED: Final = {"haproxy": "HAProxy makes one length of equal ones."}
UNFOLDED: Final = {"haproxy": "HAProxy joins the lines, and knows of both requests that it then sees."}
# A sidecar reads no body: it answers at once and closes. What its client sees depends on how the kernel hands bytes on:
# 405 where the server reads the head by itself, 400 or 431 where the fault of the body comes in the same read, and no
# answer where bytes that arrive after the close reset the connection before the client has read. No step of a client
# decides which, so each of these cases takes all of them.
UNREAD: Final[Mapping[Server, Expected]] = {"sidecar": Expected((405,), also=((400,), (431,), ()))}

HOST: Final = b"Host: <host>"
JSON: Final = b"Content-Type: application/json"
LENGTH: Final = b"Content-Length: <size>"
CHUNKED: Final = b"Transfer-Encoding: chunked"
SMUGGLED: Final = b"<smuggled>"  # a request that nobody may find
SMUGGLED_LENGTH: Final = b"Content-Length: <smuggled-size>"
SECOND: Final = b"GET <second> HTTP/1.1\r\nHost: <host>\r\n\r\n"  # a request that comes before the first answer
WHOLE_CHUNK: Final = b"<hex>\r\n<body>\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"


def head(*fields: bytes, line: bytes = b"GET <ok> HTTP/1.1", host: bytes = HOST) -> bytes:
    return b"\r\n".join((line, *((host,) if host else ()), *fields)) + b"\r\n\r\n"


def post(*fields: bytes, body: bytes = b"<body>") -> bytes:
    """A request whose body the server's application reads."""
    return head(b"<auth>", JSON, *fields, line=b"POST <take> HTTP/1.1") + body


def line(target: bytes, method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    return head(line=method + b" " + target + b" " + version)


REQUEST_LINE = Group(
    "Request line",
    (
        Case("origin-form", "A path is a usual target.", (line(b"<ok>"),), SERVED),
        Case("absolute-form", "The path of an absolute URL counts.", (line(b"http://<host><ok>"),), SERVED),
        Case("absolute-form-other-host", "`Host` counts, not the authority of an absolute URL.",
             (line(b"http://other.example<ok>"),), SERVED),
        Case("asterisk-form", "`*` is no path.", (line(b"*", b"OPTIONS"),), NOT_FOUND),
        Case("authority-form", "`CONNECT` is refused, and what follows it is not passed on.",
             (line(b"<host>", b"CONNECT") + SMUGGLED,), REFUSED),
        Case("target-missing", "A request line without a target is refused.",
             (b"GET HTTP/1.1\r\n" + HOST + b"\r\n\r\n",), REFUSED),
        Case("target-empty", "Two spaces are no target.", (line(b""),), REFUSED),
        Case("target-with-space", "A space in the target is refused.", (line(b"<ok> x"),), REFUSED),
        Case("target-with-tab", "A tab in the target is refused.", (line(b"<ok>\tx"),), REFUSED),
        Case("target-with-nul", "A NUL in the target is refused.", (line(b"<ok>\x00"),), REFUSED),
        Case("target-with-cr", "A bare CR in the target is refused.", (line(b"<ok>\rx"),), REFUSED),
        Case("target-not-ascii", "A byte above 127 in the target is refused.", (line(b"/\xff"),), REFUSED),
        Case("target-with-fragment", "A fragment is no part of the path.", (line(b"<ok>#x"),), SERVED),
        Case("target-relative", "A target without a slash is refused.", (line(b"x"),), REFUSED),
        Case("target-with-dots", "Dot segments are not resolved.", (line(b"/x/..<ok>"),), NOT_FOUND),
        Case("target-with-double-slash", "Two slashes are no authority.", (line(b"//other.example<ok>"),), NOT_FOUND),
        Case("target-percent-nul", "`%00` is a character like any other.", (line(b"/%00"),), NOT_FOUND,
             {"web": Expected((400,), "stays")}),
        Case("target-long", "A target of 8 KiB is read.", (line(b"/" + b"x" * 8_192),), NOT_FOUND),
        Case("target-too-long", "A target over the head's bound is refused.", (line(b"/" + b"x" * 70_000),), TOO_LARGE),
        Case("method-unknown", "A method that is not HTTP's is refused.", (line(b"<ok>", b"BREW"),), REFUSED),
        Case("method-lower-case", "Methods are case-sensitive.", (line(b"<ok>", b"get"),), REFUSED),
        Case("method-missing", "A request line without a method is refused.", (line(b"<ok>", b""),), REFUSED),
        Case("method-quoted", "A method is a token.", (line(b"<ok>", b'"GET"'),), REFUSED),
        Case("http-0.9", "A request without a version is refused.", (b"GET <ok>\r\n\r\n",), REFUSED),
        Case("http-1.0", "HTTP/1.0 is answered, and the connection closes.", (line(b"<ok>", version=b"HTTP/1.0"),),
             SERVED_AND_CLOSED),
        Case("http-1.0-keep-alive", "`keep-alive` of HTTP/1.0 is not heeded.",
             (head(b"Connection: keep-alive", line=b"GET <ok> HTTP/1.0"),), SERVED_AND_CLOSED),
        Case("http-1.2", "No other minor version is spoken.", (line(b"<ok>", version=b"HTTP/1.2"),), REFUSED),
        Case("http-2.0", "The preface of HTTP/2 is refused.", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), REFUSED),
        Case("http-9.9", "No other major version is spoken.", (line(b"<ok>", version=b"HTTP/9.9"),), REFUSED),
        Case("http-lower-case", "The protocol's name is in capitals.", (line(b"<ok>", version=b"http/1.1"),), REFUSED),
        Case("http-two-digits", "A version has one digit on each side.", (line(b"<ok>", version=b"HTTP/1.10"),),
             REFUSED),
        Case("http-other-protocol", "Another protocol's name is refused.", (line(b"<ok>", version=b"ICE/1.0"),),
             REFUSED),
        Case("tls", "TLS is not spoken on this port.", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",), REFUSED),
        Case("crlf-before", "Empty lines before a request are skipped.", (b"\r\n\r\n" + line(b"<ok>"),), SERVED),
        Case("crlf-without-end", "Empty lines without end are refused.", (b"\r\n" * 40_000, PAUSE, b"\r\n" * 40_000),
             TOO_LARGE),
    ),
)  # fmt: skip

FIELDS = Group(
    "Header fields",
    (
        Case("line-end-lf", "A bare LF ends no line of a head.", (b"GET <ok> HTTP/1.1\nHost: <host>\n\n",), REFUSED),
        Case("line-end-lf-in-fields", "A bare LF ends no field.",
             (b"GET <ok> HTTP/1.1\r\nHost: <host>\nX: y\r\n\r\n",), REFUSED),
        Case("line-end-lf-last", "A bare LF ends no head.", (b"GET <ok> HTTP/1.1\r\nHost: <host>\r\n\n",), REFUSED),
        Case("line-end-cr", "A bare CR ends no field.", (head(b"X: y\rZ: w"),), REFUSED),
        Case("field-folded", "A folded line is refused.", (head(b"X: y\r\n z"),), REFUSED),
        Case("field-folded-with-tab", "A line folded with a tab is refused.", (head(b"X: y\r\n\tz"),), REFUSED),
        Case("field-first-with-space", "White space before the first field is refused.",
             (b"GET <ok> HTTP/1.1\r\n Host: <host>\r\n\r\n",), REFUSED),
        Case("field-space-before-colon", "White space before a colon is refused.", (head(b"X : y"),), REFUSED),
        Case("field-tab-before-colon", "A tab before a colon is refused.", (head(b"X\t: y"),), REFUSED),
        Case("field-without-colon", "A line without a colon is refused.", (head(b"X"),), REFUSED),
        Case("field-without-name", "A field without a name is refused.", (head(b": y"),), REFUSED),
        Case("field-name-with-space", "A name is a token.", (head(b"X y: z"),), REFUSED),
        Case("field-name-with-nul", "A NUL in a name is refused.", (head(b"X\x00: y"),), REFUSED),
        Case("field-name-with-bracket", "A bracket in a name is refused.", (head(b"X(y: z"),), REFUSED),
        Case("field-name-not-ascii", "A byte above 127 in a name is refused.", (head(b"X\xff: y"),), REFUSED),
        Case("field-name-with-underscore", "An underscore makes another name, not a hyphen's.",
             (head(b"Content_Length: 60"),), SERVED),
        Case("field-value-with-nul", "A NUL in a value is refused.", (head(b"X: y\x00z"),), REFUSED),
        Case("field-value-with-control", "A control character in a value is refused.", (head(b"X: y\x01z"),), REFUSED),
        Case("field-value-with-delete", "DEL in a value is refused.", (head(b"X: y\x7fz"),), REFUSED),
        Case("field-value-not-ascii", "Bytes above 127 in a value reach the application.",
             (head(b"X: \xff\xfe"),), SERVED),
        Case("field-value-empty", "A value may be empty.", (head(b"X:"),), SERVED),
        Case("field-value-with-tab", "A tab in a value is white space.", (head(b"X: y\tz"),), SERVED),
        Case("host-missing", "HTTP/1.1 without `Host` is refused.", (head(host=b""),), REFUSED),
        Case("host-missing-1.0", "HTTP/1.0 needs no `Host`.", (head(line=b"GET <ok> HTTP/1.0", host=b""),),
             SERVED_AND_CLOSED),
        Case("host-twice", "Two `Host` fields are refused.", (head(b"Host: other.example"),), REFUSED),
        Case("host-twice-the-same", "Two equal `Host` fields are refused.", (head(HOST),), REFUSED),
        Case("host-list", "A list is no host.", (head(host=b"Host: <host>, other.example"),), REFUSED),
        Case("host-with-user", "User information is no host.", (head(host=b"Host: me@<host>"),), REFUSED),
        Case("host-with-path", "A path is no host.", (head(host=b"Host: <host>/x"),), REFUSED),
        Case("host-with-space", "A space is in no host.", (head(host=b"Host: <host> x"),), REFUSED),
        Case("host-with-bad-port", "A port is a number.", (head(host=b"Host: <host>:80x"),), REFUSED),
        Case("host-empty", "An empty `Host` is allowed.", (head(host=b"Host:"),), SERVED),
        Case("host-other", "Health is told whatever the host.", (head(host=b"Host: other.example"),), SERVED),
    ),
)  # fmt: skip

LENGTHS = Group(
    "Length of a body",
    (
        Case("length", "A body has the length that is announced.", (post(LENGTH),), BODY_TAKEN),
        Case("length-on-get", "A body of a GET is read, and is no request.",
             (head(SMUGGLED_LENGTH) + SMUGGLED,), SERVED),
        Case("length-absent", "A POST without a length has no body, and what follows is a request.",
             (head(line=b"POST <ok> HTTP/1.1"),), Expected((405,), "stays")),
        Case("length-leading-zeros", "Leading zeros change nothing.", (post(b"Content-Length: 000<size>"),),
             BODY_TAKEN),
        Case("length-white-space", "White space around a length changes nothing.",
             (post(b"Content-Length: \t<size> \t"),), BODY_TAKEN),
        Case("length-twice", "Two `Content-Length` fields are refused, even equal ones.", (post(LENGTH, LENGTH),),
             REFUSED, by_proxy=MERGED),
        Case("length-conflicting", "Two lengths that differ are refused.",
             (post(LENGTH, b"Content-Length: 0") + SMUGGLED,), REFUSED),
        Case("length-list", "A list of equal lengths is refused.", (post(b"Content-Length: <size>, <size>"),),
             REFUSED, by_proxy=MERGED),
        Case("length-list-conflicting", "A list of lengths is refused.",
             (post(b"Content-Length: <size>, 0") + SMUGGLED,), REFUSED),
        Case("length-negative", "A negative length is refused.", (post(b"Content-Length: -1"),), REFUSED),
        Case("length-signed", "A sign is refused.", (post(b"Content-Length: +<size>"),), REFUSED),
        Case("length-hexadecimal", "A hexadecimal length is refused.", (post(b"Content-Length: 0x10"),), REFUSED),
        Case("length-exponent", "An exponent is refused.", (post(b"Content-Length: 1e1"),), REFUSED),
        Case("length-fraction", "A fraction is refused.", (post(b"Content-Length: <size>.0"),), REFUSED),
        Case("length-underscore", "An underscore between digits is refused.", (post(b"Content-Length: 1_0"),), REFUSED),
        Case("length-two-numbers", "Two numbers are refused.", (post(b"Content-Length: 1 0"),), REFUSED),
        Case("length-empty", "An empty length is refused.", (post(b"Content-Length:"),), REFUSED),
        Case("length-not-ascii", "Digits of other scripts are refused.", (post(b"Content-Length: \xd9\xa1"),), REFUSED),
        Case("length-overflow", "A length beyond 64 bits is refused.",
             (post(b"Content-Length: 18446744073709551621"),), REFUSED),
        Case("length-space-before-colon", "White space before its colon is refused.",
             (post(b"Content-Length : <size>"),), REFUSED),
        Case("length-with-cr", "A bare CR in a length is refused.", (post(b"Content-Length: 1\r0"),), REFUSED),
    ),
)  # fmt: skip

ENCODINGS = Group(
    "Transfer encodings",
    (
        Case("chunked", "A body may come in chunks.", (post(CHUNKED, body=WHOLE_CHUNK + LAST_CHUNK),), BODY_TAKEN),
        Case("chunked-capitals", "Names of encodings have no case.",
             (post(b"TRANSFER-ENCODING: CHUNKED", body=WHOLE_CHUNK + LAST_CHUNK),), BODY_TAKEN),
        Case("chunked-and-length", "Two framings are refused.", (post(CHUNKED, LENGTH, body=LAST_CHUNK) + SMUGGLED,),
             REFUSED),
        Case("length-and-chunked", "Two framings are refused in either order.",
             (post(LENGTH, CHUNKED, body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("chunked-in-1.0", "HTTP/1.0 has no transfer encodings.",
             (head(b"<auth>", JSON, CHUNKED, line=b"POST <take> HTTP/1.0") + WHOLE_CHUNK + LAST_CHUNK,), REFUSED),
        Case("chunked-twice", "`chunked` is applied once.",
             (post(b"Transfer-Encoding: chunked, chunked", body=LAST_CHUNK),), REFUSED),
        Case("chunked-in-two-fields", "`chunked` is applied once, whatever the fields.",
             (post(CHUNKED, CHUNKED, body=LAST_CHUNK),), REFUSED),
        Case("chunked-then-identity", "`chunked` comes last.",
             (post(b"Transfer-Encoding: chunked, identity", body=LAST_CHUNK),), REFUSED),
        Case("chunked-then-identity-in-two-fields", "`chunked` comes last, whatever the fields.",
             (post(CHUNKED, b"Transfer-Encoding: identity", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("identity", "`identity` is no encoding any more.",
             (post(b"Transfer-Encoding: identity", body=LAST_CHUNK),), REFUSED),
        Case("identity-and-length", "An encoding beside a length is refused, whichever it is.",
             (post(b"Transfer-Encoding: identity", LENGTH) + SMUGGLED,), REFUSED),
        Case("encoding-unknown", "An unknown encoding is refused.",
             (post(b"Transfer-Encoding: xchunked", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("encoding-gzip", "No other encoding is read.",
             (post(b"Transfer-Encoding: gzip, chunked", body=LAST_CHUNK),), REFUSED),
        Case("encoding-empty", "An empty encoding is refused.", (post(b"Transfer-Encoding:", body=LAST_CHUNK),),
             REFUSED),
        Case("encoding-parameter", "`chunked` has no parameter.",
             (post(b"Transfer-Encoding: chunked;q=1", body=LAST_CHUNK),), REFUSED),
        Case("encoding-quoted", "`chunked` is not quoted.", (post(b'Transfer-Encoding: "chunked"', body=LAST_CHUNK),),
             REFUSED),
        Case("encoding-vertical-tab", "A vertical tab is no white space.",
             (post(b"Transfer-Encoding: \x0bchunked", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("encoding-form-feed", "A form feed is no white space.",
             (post(b"Transfer-Encoding: chunked\x0c", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("encoding-not-ascii", "A no-break space is no white space.",
             (post(b"Transfer-Encoding: \xa0chunked", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("encoding-comma-before", "An empty element before `chunked` is refused.",
             (post(b"Transfer-Encoding: , chunked", body=LAST_CHUNK),), REFUSED),
        Case("encoding-comma-after", "An empty element behind `chunked` is refused.",
             (post(b"Transfer-Encoding: chunked,", body=LAST_CHUNK),), REFUSED),
        Case("encoding-folded", "A folded encoding is refused.",
             (post(b"Transfer-Encoding:\r\n chunked", body=LAST_CHUNK) + SMUGGLED,), REFUSED, by_proxy=UNFOLDED),
        Case("encoding-space-before-colon", "White space before its colon is refused.",
             (post(b"Transfer-Encoding : chunked", body=LAST_CHUNK) + SMUGGLED,), REFUSED),
        Case("encoding-underscore", "`Transfer_Encoding` is another field.",
             (post(b"Transfer_Encoding: chunked", LENGTH),), BODY_TAKEN),
    ),
)  # fmt: skip


def chunked(*parts: bytes) -> tuple[Step, ...]:
    return (post(CHUNKED, body=b"".join(parts)),)


CHUNKS = Group(
    "Chunks",
    (
        Case("chunk-size-capitals", "A size is hexadecimal in either case.",
             chunked(b"<HEX>\r\n<body>\r\n", LAST_CHUNK), BODY_TAKEN),
        Case("chunk-size-leading-zeros", "Leading zeros change nothing.",
             chunked(b"0000<hex>\r\n<body>\r\n", b"000\r\n\r\n"), BODY_TAKEN),
        Case("chunk-extension", "Extensions are skipped.", chunked(b'<hex>;a=b;c="d"\r\n<body>\r\n', b"0;x\r\n\r\n"),
             BODY_TAKEN),
        Case("chunk-extension-long", "An extension over the head's bound is refused.",
             (post(CHUNKED, body=b"<hex>;"), PAUSE, b"x" * 140_000, PAUSE, b"\r\n<body>\r\n" + LAST_CHUNK), TOO_LARGE,
             UNREAD),
        Case("chunk-extension-with-lf", "A bare LF in an extension is refused.",
             chunked(b"<hex>;\nx\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-extension-with-cr", "A bare CR in an extension is refused.",
             chunked(b"<hex>;a\rb\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-overflow", "A size beyond 64 bits is refused.",
             chunked(b"fffffffffffffffff\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-overflow-to-small", "A size is not cut to 64 bits.",
             chunked(b"10000000000000000<hex>\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-negative", "A negative size is refused.", chunked(b"-1\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-signed", "A sign is refused.", chunked(b"+<hex>\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-prefixed", "`0x` is refused.", chunked(b"0x<hex>\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-not-hexadecimal", "Other letters are refused.", chunked(b"zz\r\n<body>\r\n", LAST_CHUNK),
             REFUSED),
        Case("chunk-size-empty", "An empty size is refused.", chunked(b"\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-space-before", "White space before a size is refused.",
             chunked(b" <hex>\r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-space-behind", "White space behind a size is refused.",
             chunked(b"<hex> \r\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-size-lf", "A size ends with CRLF.", chunked(b"<hex>\n<body>\r\n", LAST_CHUNK), REFUSED),
        Case("chunk-data-lf", "A chunk ends with CRLF.", chunked(b"<hex>\r\n<body>\n", LAST_CHUNK), REFUSED),
        Case("chunk-data-without-end", "A chunk without CRLF is refused.", chunked(b"<hex>\r\n<body>", LAST_CHUNK),
             REFUSED),
        Case("chunk-data-longer", "A chunk longer than its size is refused.",
             chunked(b"<hex>\r\n<body>x\r\n", LAST_CHUNK), REFUSED),
        Case("chunks-tiny", "More than 1,024 tiny chunks are refused.",
             (post(CHUNKED, body=b""), b"1\r\nx\r\n" * 2_000), REFUSED, UNREAD),
        Case("chunk-last-lf", "The last chunk ends with CRLF.", chunked(WHOLE_CHUNK, b"0\n\n"), REFUSED),
    ),
)  # fmt: skip

TRAILERS = Group(
    "Trailers",
    (
        Case("trailer-authorization", "A key behind the body lets nobody in.",
             (head(JSON, CHUNKED, line=b"POST <take> HTTP/1.1") + WHOLE_CHUNK + b"0\r\n<auth>\r\n\r\n",),
             Expected((401,), "stays"),
             {"sidecar": Expected((405,), "stays")}),
        Case("trailer-cookie", "A cookie behind the body counts for nothing.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nCookie: luminet_session=x\r\n\r\n"),), BODY_TAKEN),
        Case("trailer-forwarded-for", "An address behind the body counts for nothing.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"),), BODY_TAKEN),
        Case("trailer-length", "A length behind the body is refused.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nContent-Length: 60\r\n\r\n"),), REFUSED),
        Case("trailer-encoding", "An encoding behind the body is refused.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),), REFUSED),
        Case("trailer-host", "A host behind the body counts for nothing.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nHost: other.example\r\n\r\n"),), BODY_TAKEN),
        Case("trailer-connection", "`Connection: close` behind the body is heeded.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nConnection: close\r\n\r\n"),), Expected((TAKEN,))),
        Case("trailer-malformed", "A malformed trailer is refused.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nX : y\r\n\r\n") + SECOND,), REFUSED),
        Case("trailer-lf", "A bare LF ends no trailer.", (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nX: y\n\n"),),
             REFUSED),
        Case("trailers-too-large", "Trailers have the head's bound.",
             (post(CHUNKED, body=WHOLE_CHUNK + b"0\r\nX: "), PAUSE, b"y" * 140_000, PAUSE, b"y\r\n\r\n"), TOO_LARGE,
             UNREAD),
    ),
)  # fmt: skip

SIZES = Group(
    "Size of a head",
    (
        Case("head-large", "A head of 60 KiB is read.", (head(b"X: " + b"y" * 61_440),), SERVED),
        Case("head-too-large-in-one-field", "A head over 64 KiB is refused, in one field.",
             (head(b"X: " + b"y" * 300_000),), TOO_LARGE),
        Case("head-too-large-in-many-fields", "A head over 64 KiB is refused, in many fields.",
             (head(*(b"X-%d: %b" % (number, b"y" * 90) for number in range(3_000))),), TOO_LARGE),
        Case("head-fields-many", "More than 256 fields are refused, however short.", (head(*(b"X:",) * 256),),
             TOO_LARGE),
        Case("head-too-large-and-more", "A client that still sends can read the refusal.",
             (b"GET <ok> HTTP/1.1\r\n", *(b"X: " + b"y" * 9_000 + b"\r\n",) * 9, b"z" * 400_000), TOO_LARGE),
    ),
)  # fmt: skip

PIPELINE = Group(
    "One request after the other",
    (
        Case("keep-alive", "A connection serves another request when one is answered.",
             (head(), ANSWERED, head(), ANSWERED), Expected((200, 200), "stays")),
        Case("connection-close", "`close` is heeded.", (head(b"Connection: close"),), SERVED_AND_CLOSED),
        Case("connection-close-among-others", "`close` is found in a list.", (head(b"Connection: x, Close"),),
             SERVED_AND_CLOSED),
        Case("data-after-close", "What follows a last request is not read.", (head(b"Connection: close") + SECOND,),
             SERVED_AND_CLOSED),
        Case("pipelined", "A second request before the first answer ends the connection behind that answer.",
             (head() + SECOND,), SERVED_AND_CLOSED),
        Case("pipelined-behind-a-body", "The same holds behind a body.", (post(LENGTH) + SECOND,), Expected((TAKEN,))),
        Case("pipelined-behind-chunks", "The same holds behind chunks.",
             (post(CHUNKED, body=WHOLE_CHUNK + LAST_CHUNK) + SECOND,), Expected((TAKEN,))),
        Case("pipelined-garbage", "Garbage behind a request ends the connection behind its answer.",
             (head() + b"\x16\x03\x01",), SERVED_AND_CLOSED),
        Case("reuse-after-404", "An unknown path ends no connection.",
             (line(b"/nowhere"), ANSWERED, head(), ANSWERED), Expected((404, 200), "stays")),
        Case("reuse-after-405", "A wrong method ends no connection.",
             (line(b"<ok>", b"DELETE"), ANSWERED, head(), ANSWERED), Expected((405, 200), "stays")),
        Case("reuse-after-unread-body", "A body that nobody reads is skipped.",
             (head(SMUGGLED_LENGTH, line=b"POST <ok> HTTP/1.1") + SMUGGLED, ANSWERED, head(), ANSWERED),
             Expected((405, 200), "stays")),
        Case("reuse-after-malformed", "A malformed request ends the connection.",
             (head(), ANSWERED, head(b"X : y") + SMUGGLED,), Expected((200, 400))),
        Case("garbage-after-an-answer", "Garbage between requests is refused.",
             (head(), ANSWERED, b"\x16\x03\x01\x00"), Expected((200, 400))),
    ),
)  # fmt: skip

EXPECT_AND_UPGRADE = Group(
    "Expectations and other protocols",
    (
        Case("expect-continue", "A client that asks before it sends a body gets 100.",
             (post(LENGTH, b"Expect: 100-continue", body=b""), CONTINUED, b"<body>"),
             Expected((TAKEN,), "stays", interim=1), UNREAD),
        Case("expect-continue-capitals", "The expectation has no case.",
             (post(LENGTH, b"Expect: 100-Continue", body=b""), CONTINUED, b"<body>"),
             Expected((TAKEN,), "stays", interim=1), UNREAD),
        Case("expect-continue-refused", "A refused request gets no 100, unless the application reads the body first.",
             (head(JSON, b"Content-Length: 10", b"Expect: 100-continue", line=b"POST /nowhere HTTP/1.1"), ANSWERED,
             b"x" * 10), NOT_FOUND, {"web": Expected((408,), interim=1)}),
        Case("expect-other", "Another expectation is ignored.", (head(b"Expect: 200-maybe"),), SERVED),
        Case("upgrade-websocket", "`Upgrade: websocket` is ignored; the web refuses it outside live sockets.",
             (head(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
             b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),),
             SERVED, {"web": Expected((403,))}),
        Case("upgrade-websocket-with-body", "A WebSocket's request with a body is refused.",
             (post(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
             b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", LENGTH),),
             REFUSED),
        Case("upgrade-websocket-with-chunks", "A WebSocket's request with chunks is refused.",
             (post(b"Connection: Upgrade", b"Upgrade: websocket", CHUNKED, body=WHOLE_CHUNK + LAST_CHUNK),), REFUSED),
        Case("upgrade-h2c", "HTTP/2 is not spoken, and the request is answered as it is.",
             (head(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk"),), SERVED),
        Case("upgrade-h2c-with-body", "The body of a request that asks for HTTP/2 is read.",
             (post(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk", LENGTH),),
             BODY_TAKEN),
        Case("upgrade-unknown", "Another protocol is not spoken.",
             (head(b"Connection: Upgrade", b"Upgrade: irc/6.9"),), SERVED),
        Case("upgrade-then-request", "A second request behind an ignored `Upgrade` comes too early as well.",
             (head(b"Connection: Upgrade", b"Upgrade: h2c") + SECOND,), SERVED_AND_CLOSED),
        Case("upgrade-without-connection", "`Upgrade` without `Connection: upgrade` is ignored.",
             (head(b"Upgrade: websocket"),), SERVED),
    ),
)  # fmt: skip

TIME = Group(
    "Slow and absent clients",
    (
        Case("silent", "A client that sends nothing is refused at the deadline.", (), TIMED_OUT),
        Case("head-half-then-silent", "Half a head is refused at the deadline.", (b"GET <ok> HTTP/1.1\r\nHost: <ho",),
             TIMED_OUT),
        Case("head-dripped", "A head that drips is refused at the deadline.", (b"GET <ok> HTTP/1.1\r\nX: ", Drip(b"y")),
             TIMED_OUT),
        Case("second-head-half", "Half a second head is refused at the deadline.", (head(), ANSWERED, b"GET <ok>"),
             Expected((200, 408))),
        Case("body-half-then-silent", "Half a body is refused at the deadline.", (post(LENGTH, body=b"{"),),
             TIMED_OUT, UNREAD),
        Case("body-dripped", "A body that drips is refused at the deadline.",
             (post(b"Content-Length: 9000", body=b""), Drip(b" ")), TIMED_OUT, UNREAD),
        Case("chunks-dripped", "Chunks that drip are refused at the deadline.",
             (post(CHUNKED, body=b""), Drip(b"1\r\n \r\n")),
             TIMED_OUT, UNREAD),
        Case("body-unwanted-then-silent", "The rest of a refused body is awaited for 10 s.",
             (head(b"Content-Length: 100", line=b"POST /nowhere HTTP/1.1") + b"x",), Expected((404,)),
             {"web": TIMED_OUT}),
        Case("closed-at-once", "A client may leave at once.", (FIN,), CLOSED),
        Case("head-half-then-closed", "Half a head and the end of it get no answer.",
             (b"GET <ok> HTTP/1.1\r\nHost", FIN), CLOSED),
        Case("closed-behind-request", "A client that closes its sending side is answered.", (head(), FIN),
             Expected((200,), interim=ANY)),
        Case("closed-behind-body", "A client that closes its sending side behind a body is answered.",
             (post(LENGTH), FIN),
             Expected((TAKEN,), interim=ANY)),
        Case("body-half-then-closed", "Half a body and the end of it get no answer.", (post(LENGTH, body=b"{"), FIN),
             CLOSED, UNREAD),
        Case("chunks-half-then-closed", "Chunks without a last one get no answer.",
             (post(CHUNKED, body=b"5\r\nab"), FIN), CLOSED, UNREAD),
        Case("reset-at-once", "A reset leaves nothing.", (PAUSE, RESET), LEFT),
        Case("reset-in-head", "A reset in a head leaves nothing.", (b"GET <ok> HT", PAUSE, RESET), LEFT),
        Case("reset-in-body", "A reset in a body leaves nothing.", (post(LENGTH, body=b"{"), PAUSE, RESET), LEFT),
        Case("reset-behind-request", "A reset before the answer leaves nothing.", (post(LENGTH), RESET), LEFT),
        Case("head-byte-by-byte", "A head may come in as many pieces as it likes.",
             (b"G", b"ET ", b"<ok>", *(bytes([byte]) for byte in b" HTTP/1.1\r\nX: y\r\n"), HOST, b"\r", PAUSE, b"\n",
             b"\r", b"\n"), SERVED),
    ),
)  # fmt: skip

ANSWERS = Group(
    "Answers",
    (
        Case("head", "HEAD is answered as GET is, without a body.", (line(b"<ok>", b"HEAD"), ANSWERED), SERVED,
             is_head=True),
        Case("head-not-found", "A refused HEAD has no body either.", (line(b"/nowhere", b"HEAD"), ANSWERED),
             NOT_FOUND, is_head=True),
        Case("head-with-body", "A body of a HEAD is skipped.",
             (head(SMUGGLED_LENGTH, line=b"HEAD <ok> HTTP/1.1") + SMUGGLED, ANSWERED), SERVED, is_head=True),
        Case("options", "OPTIONS is answered 204, without a body.", (line(b"<ok>", b"OPTIONS"), ANSWERED),
             Expected((204,), "stays"), {"web": Expected((405,), "stays")}),
        Case("trace", "TRACE shows nobody their request.", (line(b"<ok>", b"TRACE"), ANSWERED),
             Expected((405,), "stays")),
    ),
)  # fmt: skip

GROUPS: Final[Sequence[Group]] = (
    REQUEST_LINE, FIELDS, LENGTHS, ENCODINGS, CHUNKS, TRAILERS, SIZES, PIPELINE, EXPECT_AND_UPGRADE, TIME, ANSWERS,
)  # fmt: skip
CASES: Final[Sequence[Case]] = tuple(case for group in GROUPS for case in group.cases)
