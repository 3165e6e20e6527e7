package layers

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/internal/infiniband"
)

// madSamples are the messages of a connection and of its end, and what tshark says of
// each: fields by their names, without "infiniband.cm.".
func madSamples() []struct {
	mad  MAD
	says map[string]string
} {
	header := func(a infiniband.Attribute) infiniband.MADFields {
		return infiniband.MADFields{Class: 7, ClassVersion: 2, Method: 3, Transaction: 0x0102030405060708,
			Attribute: a}
	}
	gid := func(last byte) [16]byte { return [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 15: last} }
	comm := infiniband.Comm{Local: 0xA1A2A3A4, Remote: 0xB1B2B3B4}
	req := infiniband.REQFields{
		LocalComm:     0xA1A2A3A4,
		Service:       infiniband.TCPService + 18515,
		CAGUID:        0x1112131415161718,
		QKey:          0x21222324,
		QPN:           0x313233,
		Resources:     4,
		Depth:         5,
		RemoteTimeout: 20,
		FlowControl:   true,
		PSN:           0x515253,
		LocalTimeout:  19,
		Retries:       7,
		PKey:          infiniband.PKey,
		MTU:           3,
		RNRRetries:    6,
		MaxRetries:    15,
		Primary: infiniband.Path{LocalGID: gid(1), RemoteGID: gid(2), FlowLabel: 0x71727, PacketRate: 0x3A,
			TrafficClass: 0x74, HopLimit: 0x75, SubnetLocal: true, AckTimeout: 18},
	}
	infiniband.IPService(req.Private[:]).Encode(&infiniband.IPServiceFields{Version: 4, Port: 0xC002,
		Source: [16]byte{12: 10, 15: 1}, Destination: [16]byte{12: 10, 15: 2}})
	rep := infiniband.REPFields{
		LocalComm:  0xB1B2B3B4,
		RemoteComm: 0xA1A2A3A4,
		QKey:       0x11121314,
		QPN:        0x212223,
		PSN:        0x313233,
		Resources:  6,
		Depth:      7,
		AckDelay:   15, Failover: 2, FlowControl: true, RNRRetries: 5, SRQ: true, CAGUID: 0x5152535455565758,
	}
	return []struct {
		mad  MAD
		says map[string]string
	}{
		{MAD{MADFields: header(infiniband.AttributeREQ), REQ: &req}, map[string]string{
			"req": "0xa1a2a3a4", "req.serviceid.prefix": "0000000001", "req.serviceid.protocol": "0x06",
			"req.serviceid.dport": "0x4853",
			"req.localcaguid":     "0x1112131415161718", "req.localqkey": "0x21222324",
			"req.localqpn": "0x313233", "req.responderres": "0x04",
			"req.initdepth": "0x05", "req.remoteresptout": "0x14", "req.transpsvctype": "0x00",
			"req.e2eflowctrl": "0x01", "req.startpsn": "0x515253",
			"req.localresptout": "0x13", "req.retrcount": "0x07", "req.pkey": "0xffff", "req.pppmtu": "0x03",
			"req.rnrretrcount": "0x06", "req.maxcmretr": "0x0f",
			"req.prim_localgid_ipv4": "10.0.0.1", "req.prim_remotegid_ipv4": "10.0.0.2",
			"req.prim_tfcclass": "0x74", "req.prim_hoplim": "0x75", "req.prim_subnetlocal": "0x01",
			"req.prim_localacktout": "0x12",
			"req.ip_cm.ipv":         "0x04", "req.ip_cm.sport": "0xc002", "req.ip_cm.sip4": "10.0.0.1",
			"req.ip_cm.dip4": "10.0.0.2",
		}},
		{MAD{MADFields: header(infiniband.AttributeREP), REP: &rep}, map[string]string{
			"rep": "0xb1b2b3b4", "rep.remotecommid": "0xa1a2a3a4", "rep.localqkey": "0x11121314",
			"rep.localqpn": "0x212223", "rep.startpsn": "0x313233",
			"rep.respres": "0x06", "rep.initdepth": "0x07", "rep.tgtackdelay": "0x0f",
			"rep.failoveracc": "0x02", "rep.e2eflowctrl": "0x01",
			"rep.rnrretrcount": "0x05", "rep.srq": "0x01", "rep.localcaguid": "0x5152535455565758",
		}},
		{MAD{MADFields: header(infiniband.AttributeRTU), RTU: &infiniband.RTUFields{Comm: comm}},
			map[string]string{
				"rtu.localcommid": "0xa1a2a3a4", "rtu.remotecommid": "0xb1b2b3b4",
			}},
		{MAD{MADFields: header(infiniband.AttributeREJ),
			REJ: &infiniband.REJFields{Comm: comm, About: infiniband.AboutREP, InfoLength: 72,
				Reason: infiniband.RejectConsumer}},
			map[string]string{"rej.localcommid": "0xa1a2a3a4", "rej.remotecommid": "0xb1b2b3b4",
				"rej.msgrej": "0x01", "rej.rejinfolen": "0x48", "rej.reason": "0x001c"}},
		{MAD{MADFields: header(infiniband.AttributeDREQ),
			DREQ: &infiniband.DREQFields{Comm: comm, QPN: 0x212223}}, map[string]string{
			"dreq.localcommid": "0xa1a2a3a4", "dreq.remotecommid": "0xb1b2b3b4",
			"req.remoteqpneecn": "0x212223",
		}},
		{MAD{MADFields: header(infiniband.AttributeDREP), DREP: &infiniband.DREPFields{Comm: comm}},
			map[string]string{
				"drsp.localcommid": "0xa1a2a3a4", "drsp.remotecommid": "0xb1b2b3b4",
			}},
		{MAD{MADFields: header(infiniband.AttributeMRA),
			MRA: &infiniband.MRAFields{Comm: comm, About: infiniband.AboutREQ, Timeout: 21}}, nil},
	}
}

// madFrame is a frame with a management datagram.
func madFrame(t testing.TB, m *MAD) []byte {
	return roceFrame(t, 4, &infiniband.Fields{
		BTH: infiniband.BTHFields{Opcode: infiniband.UDSendOnly, PKey: infiniband.PKey,
			DestQP: infiniband.GSI},
		DETH: infiniband.DETHFields{QKey: infiniband.GSIQKey, SrcQP: infiniband.GSI},
	}, build(t, m))
}

// TestMAD writes each message and reads it behind all layers.
func TestMAD(t *testing.T) {
	for _, sample := range madSamples() {
		packet := gopacket.NewPacket(madFrame(t, &sample.mad), golayers.LayerTypeEthernet, gopacket.Default)
		got, ok := packet.Layer(LayerTypeMAD).(*MAD)
		if !ok || packet.ErrorLayer() != nil {
			t.Errorf("%v: decoded %v", sample.mad.Attribute, packet)
			continue
		}
		got.BaseLayer = golayers.BaseLayer{}
		if !reflect.DeepEqual(*got, sample.mad) {
			t.Errorf("%v: decoded %+v, want %+v", sample.mad.Attribute, *got, sample.mad)
		}
	}
	whole := build(t, &madSamples()[0].mad)
	if p := gopacket.NewPacket(whole[:255], LayerTypeMAD, gopacket.Default); p.ErrorLayer() == nil ||
		!p.Metadata().Truncated {
		t.Errorf("255 bytes are %v", p)
	}
	whole[1] = 4 // performance management
	if m, ok := gopacket.NewPacket(whole, LayerTypeMAD, gopacket.Default).Layer(LayerTypeMAD).(*MAD); !ok ||
		m.REQ != nil || m.Class != 4 {
		t.Errorf("a MAD of another class is %+v", m)
	}
}

// Wireshark reads our messages as they were written. It does not know MRA, and takes
// the flow label and packet rate of a path from the wrong bytes (version 4.0).
func TestTsharkReadsMAD(t *testing.T) {
	var frames [][]byte
	names := []string{"_ws.malformed", "_ws.expert.severity", "infiniband.mad.mgmtclass",
		"infiniband.mad.classversion", "infiniband.mad.method", "infiniband.mad.transactionid",
		"infiniband.mad.attributeid"}
	for _, sample := range madSamples() {
		frames = append(frames, madFrame(t, &sample.mad))
		for name := range sample.says {
			names = append(names, "infiniband.cm."+name)
		}
	}
	lines := strings.Split(strings.TrimSuffix(tshark(t, frames, names...), "\n"), "\n")
	for i, sample := range madSamples() {
		fields := strings.Split(lines[i], "|")
		if got := strings.Join(fields[:7],
			" "); got != "  0x07 0x02 0x03 0x0102030405060708 "+[]string{"0x0010", "0x0013", "0x0014",
			"0x0012", "0x0015", "0x0016", "0x0011"}[i] {
			t.Errorf("%v: tshark says %q of the header", sample.mad.Attribute, got)
		}
		for j, name := range names[7:] {
			if got, want := fields[7+j], sample.says[strings.TrimPrefix(name,
				"infiniband.cm.")]; got != want {
				t.Errorf("%v: tshark says %s is %q, want %q", sample.mad.Attribute, name, got, want)
			}
		}
	}
}
