package perftest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"railbed/internal/infiniband"
)

// word is the data that one end wrote with one call.
type word struct {
	client bool
	text   string
}

// recorded is a dialogue of two programs of Debian's perftest 4.5+0.17, which says that
// it is 6.06, on one rdma_rxe: what each wrote, ">" the client. Where it goes over
// rdma_cm ("-cm-") only the end that the name says is the program.
func recorded(t testing.TB, file string) (words []word) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		side, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		said, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		words = append(words, word{side == ">", said})
	}
	return words
}

// newer returns the dialogue of the newest version, by its source (linux-rdma/perftest 00b55b6,
// ctx_close_connection). That version does not send "done", and it omits 6.28's additions for an
// older end. Debian does not have it, so it could not be recorded.
func newer(words []word) []word {
	out := bytes.Clone([]byte("6.29" + strings.Repeat("\x00", 12)))
	var again []word
	for _, w := range words {
		if strings.HasPrefix(w.text, "6.06\x00") {
			w.text = string(out)
		}
		if w.text = strings.TrimSuffix(w.text, "done\x00"); w.text != "" {
			again = append(again, w)
		}
	}
	return again
}

// TestDialogue takes the part of either end in recorded dialogues: it says as much as
// the program did in each step, the same keys and numbers, and nothing else.
func TestDialogue(t *testing.T) {
	for name, parts := range map[string][]bool{
		"write-bw": {true, false}, "write-lat": {true, false}, "send-bw": {true, false},
		"write-bw-cm-client": {true}, "write-bw-cm-server": {false},
	} {
		words := recorded(t, "testdata/"+name+"-6.06.txt")
		for version, words := range map[string][]word{"6.06": words, "6.29": newer(words)} {
			for _, client := range parts {
				t.Run(name+"/"+version+"/client="+strconv.FormatBool(client), func(t *testing.T) {
					speak(t, words, client)
				})
			}
		}
	}
}

func speak(t *testing.T, words []word, client bool) {
	here, there := net.Pipe()
	defer here.Close()
	var mine []string
	for _, w := range words {
		if text := strings.TrimSuffix(w.text, "done\x00"); w.client == client && text != "" {
			mine = append(mine, text)
		}
	}
	said := make(chan string, len(words)+1)
	go func() {
		defer there.Close()
		defer close(said)
		for _, w := range words {
			if w.text = strings.TrimSuffix(w.text, "done\x00"); w.text == "" {
				continue
			}
			if w.client != client {
				io.WriteString(there, w.text)
				continue
			}
			b := make([]byte, len(w.text)+1)
			n, err := there.Read(b) // one call, as the programs do
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	// What the programs leave as it was in memory: the padding of a structure, whose last
	// number says at which place of theirs the GID is.
	binary := len(mine[4]) == structLen
	untold := func(text string) string {
		if binary && len(text) == structLen {
			return text[:structRKey+4] + text[structVAddr:structLen-4]
		}
		return text
	}
	d := dialogue{conn: here, client: client, binary: binary}
	decode, addr := decodeKeys, netip.MustParseAddr("10.9.0.1")
	if binary {
		decode = decodeStruct
	}
	mtu, err := d.open(4096)
	if err != nil || mtu != 4096 || d.cycle != 4096 || d.line != 64 {
		t.Fatalf("MTU %d, %+v, %v", mtu, d, err)
	}
	for rest := mine[4:]; len(rest) > 0; rest = rest[1:] {
		if len(rest[0]) == keysLen || len(rest[0]) == structLen {
			k, err := decode([]byte(rest[0]))
			none := k.QPN == 0 && binary // before there is a queue pair
			if err != nil ||
				!none && (k.GID != addr || k.Reads != 1 || k.VAddr>>40 != 0x55 && k.VAddr>>40 != 0x56) {
				t.Fatalf("%+v, %v", k, err)
			}
			if theirs, err := d.keys(&k); err != nil || (theirs.QPN == 0) != none ||
				theirs.QPN == k.QPN != none || theirs.QPN > 0xff && !binary {
				t.Fatalf("%+v, %v", theirs, err)
			}
			continue
		}
		theirs, err := d.report(Report{64, 20, 1.03, 0.21, 0.003365})
		if err != nil {
			t.Fatal(err)
		}
		if !client && (theirs.Size != 64 || theirs.Iterations != 20 || theirs.Average < 0.13 ||
			theirs.Average > 0.21 || theirs.Messages < 0.0021 || theirs.Messages > 0.0034) {
			t.Errorf("the client reports %+v", theirs)
		}
		rest = rest[4:]
	}
	var got []string
	for s := range said {
		got = append(got, s)
	}
	if len(got) != len(mine) {
		t.Fatalf("%d words, want %d", len(got), len(mine))
	}
	for i, want := range mine {
		same := untold(got[i]) == untold(want)
		switch {
		case i == 0:
			same = got[i] == "6.27"+strings.Repeat("\x00", 12)
		case len(want) == 8 && i > 3: // of a report, which was another
			same = len(got[i]) == 8
		}
		if !same {
			t.Errorf("word %d is %q, want %q", i, got[i], want)
		}
	}
}

// TestKeysOfIPv6 is the text of keys with a GID that is no mapped address, by the
// formats of perftest_communication.h.
func TestKeysOfIPv6(t *testing.T) {
	k := Keys{LID: 0x12, Reads: 16, QPN: 0x345, PSN: 0xfffffe, RKey: 0xdeadbeef, VAddr: 0x7f0123456789,
		GID: netip.MustParseAddr("fd00::a:b"), SRQN: 7}
	const want = "0012:0010:000345:fffffe:deadbeef:00007f0123456789:" +
		"fd:00:00:00:00:00:00:00:00:00:00:00:00:0a:00:0b:00000007:\x00"
	if got := string(k.Encode()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := decodeKeys([]byte(want)); err != nil || got != k {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestKeysAsStructure is the layout of struct pingpong_dest (perftest_resources.h) by
// the rules of the amd64 ABI, and what is no such keys.
func TestKeysAsStructure(t *testing.T) {
	k := Keys{LID: 0x12, Reads: 16, QPN: 0x345, PSN: 0xfffffe, RKey: 0xdeadbeef, VAddr: 0x7f0123456789,
		GID: netip.MustParseAddr("fd00::a:b"), SRQN: 7}
	const want = "\x00\x00\x00\x12\x00\x00\x00\x10\x00\x00\x03\x45\x00\xff\xff\xfe" +
		"\xde\xad\xbe\xef\x00\x00\x00\x00\x00\x00\x7f\x01\x23\x45\x67\x89" +
		"\xfd\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x0b\x00\x00\x00\x07\x00\x00\x00\x00"
	if got := string(k.encodeStruct()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := decodeStruct([]byte(want)); err != nil || got != k {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", want[:55], want + "\x00", "\x00\x01" + want[2:],
		want[:8] + "\x01" + want[9:], want[:12] + "\xff" + want[13:]} {
		if k, err := decodeStruct([]byte(bad)); !errors.Is(err, errPeer) {
			t.Errorf("%q: %+v, %v", bad, k, err)
		}
	}
}

// TestBadKeys: what is none is refused.
func TestBadKeys(t *testing.T) {
	good := recorded(t, "testdata/write-bw-6.06.txt")[8].text
	for _, bad := range []string{
		"", good[:107], good + "0", strings.Replace(good, ":", ";", 1),
		strings.Replace(good, "0000:", "zzzz:", 1), strings.Replace(good, "ff:ff", "ff:-1", 1),
		strings.Repeat("\x00", keysLen), strings.Repeat(":", keysLen),
		strings.Replace(good, "000012:", "1000012:", 1)[:keysLen-1] + "\x00",
	} {
		if k, err := decodeKeys([]byte(bad)); !errors.Is(err, errPeer) {
			t.Errorf("%q: %+v, %v", bad, k, err)
		}
	}
	if _, err := decodeKeys([]byte(good)); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeKeys(f *testing.F) {
	f.Add([]byte(recorded(f, "testdata/write-bw-6.06.txt")[8].text))
	f.Add([]byte(recorded(f, "testdata/write-bw-cm-client-6.06.txt")[12].text))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, form := range []struct {
			decode func([]byte) (Keys, error)
			encode func(*Keys) []byte
		}{{decodeKeys, (*Keys).Encode}, {decodeStruct, (*Keys).encodeStruct}} {
			k, err := form.decode(b)
			if err != nil {
				continue
			}
			if k.QPN > infiniband.MaxQPN || k.PSN > infiniband.MaxPSN {
				t.Errorf("%+v", k)
			}
			if again, err := form.decode(form.encode(&k)); err != nil || again != k {
				t.Errorf("%+v is %+v, %v", k, again, err)
			}
		}
	})
}

// mouth is a peer that says something, and then leaves.
type mouth struct {
	net.Conn
	says io.Reader
}

func (m mouth) Read(b []byte) (int, error)  { return m.says.Read(b) }
func (m mouth) Write(b []byte) (int, error) { return len(b), nil }

// FuzzDialogue: whatever a peer says, buffers stay small and MTUs are some.
func FuzzDialogue(f *testing.F) {
	var all []byte
	for _, w := range recorded(f, "testdata/write-bw-6.06.txt") {
		if w.client {
			all = append(all, w.text...)
		}
	}
	f.Add(all, true, false)
	f.Add([]byte("9e99\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff"), false, true)
	f.Fuzz(func(t *testing.T, b []byte, client, binary bool) {
		a, _ := net.Pipe()
		defer a.Close()
		d := dialogue{conn: mouth{a, bytes.NewReader(b)}, client: client, binary: binary}
		mtu, err := d.open(1024)
		if err != nil {
			return
		}
		if d.version < oldest || d.cycle < cycleBuffer || d.cycle > maxCycleBuffer ||
			infiniband.MTUCode(mtu) == 0 || mtu > 1024 {
			t.Errorf("%+v, MTU %d", d, mtu)
		}
		var k Keys
		for range 4 {
			if _, err := d.keys(&k); err != nil {
				return
			}
		}
		d.report(Report{})
	})
}

// TestVersions: older programs than 5.70 are refused, as they are by newer ones.
func TestVersions(t *testing.T) {
	for text, good := range map[string]bool{"6.06": true, "5.70": true, "5.69": false, "": false,
		"NaN": false, "six": false, "26.1": true} {
		if _, err := parseVersion(append([]byte(text), 0)); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
