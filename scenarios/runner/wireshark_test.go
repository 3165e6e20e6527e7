package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/layers"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

// headerFields are the fields of a header by the dissector's names: what its Go type
// calls them, in small letters.
func headerFields(prefix string, header any, found map[string]uint64) {
	v := reflect.ValueOf(header)
	for i := range v.NumField() {
		name := prefix + strings.ToLower(v.Type().Field(i).Name)
		switch f := v.Field(i); f.Kind() {
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			found[name] = f.Uint()
		}
	}
}

// allFields are the names of all fields of all headers.
func allFields() (names []string) {
	every := make(map[string]uint64)
	headerFields("rd.", wire.RDBase{}, every)
	for name := range typeFields {
		headerFields("rd."+name+".", typeFields[name](&layers.RD{}), every)
	}
	headerFields("rd.security.", wire.RDSecurity{}, every)
	for name := range every {
		names = append(names, name)
	}
	return names
}

// typeFields maps each type with a header behind the base header to that header.
var typeFields = map[string]func(*layers.RD) any{
	"data": func(r *layers.RD) any { return r.Data }, "skip": func(r *layers.RD) any { return r.Skip },
	"ack":  func(r *layers.RD) any { return r.Ack },
	"nack": func(r *layers.RD) any { return r.Nack }, "reject": func(r *layers.RD) any { return r.Reject },
}

// fieldsOf are the fields of a frame as our layers read it, nil of a message of ICMP,
// which quotes others and where only Wireshark looks.
func fieldsOf(frame []byte) map[string]uint64 {
	found := make(map[string]uint64)
	packet := gopacket.NewPacket(frame, golayers.LayerTypeEthernet, gopacket.Default)
	if packet.Layer(golayers.LayerTypeICMPv4) != nil {
		return nil
	}
	r, ok := packet.Layer(layers.LayerTypeRD).(*layers.RD)
	if !ok {
		return found
	}
	headerFields("rd.", r.RDBase, found)
	if r.Sealed {
		headerFields("rd.security.", r.Security, found)
	}
	if header := typeFields[strings.ToLower(r.Type.String())]; header != nil && (r.Whole || r.Readable) {
		headerFields("rd."+strings.ToLower(r.Type.String())+".", header(r), found)
	}
	return found
}

// wiresharkAgrees holds that Wireshark with our dissector reads from each header of
// a recording what our layers do, and that of each of these types there was some.
func wiresharkAgrees(t *testing.T, recording string, types ...wire.RDType) {
	hosttest.Need(t, hosttest.Tshark)
	script := filepath.Join(t.TempDir(), "railbed.lua")
	if err := os.WriteFile(script, layers.Dissector, 0o600); err != nil {
		t.Fatal(err)
	}
	names := allFields()
	args := []string{"-n", "-r", recording, "-X", "lua_script:" + script, "-T", "fields", "-E", "separator=|"}
	for _, name := range names {
		args = append(args, "-e", name)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	seen := make(map[uint64]int)
	r := openRecording(t, recording)
	for frame := 0; ; frame++ {
		p, err := r.Next()
		if errors.Is(err, io.EOF) && frame == len(lines) {
			break
		}
		if err != nil || frame == len(lines) {
			t.Fatalf("frame %d of %d: %v", frame, len(lines), err)
		}
		want, got := fieldsOf(p.Data), strings.Split(lines[frame], "|")
		if want == nil {
			continue
		}
		if kind, ok := want["rd.type"]; ok {
			seen[kind]++
		}
		for i, name := range names {
			text := ""
			if value, has := want[name]; has {
				text = strconv.FormatUint(value, 10)
			}
			if number, err := strconv.ParseUint(got[i], 0, 64); err == nil {
				got[i] = fmt.Sprint(number)
			}
			if got[i] != text {
				t.Fatalf("frame %d: %s is %q to tshark, and %q to our layers: %x", frame+1, name, got[i],
					text, p.Data[:min(len(p.Data), 150)])
			}
		}
	}
	for _, kind := range types {
		if seen[uint64(kind)] == 0 {
			t.Errorf("of %v there was none: %v", kind, seen)
		}
	}
}
