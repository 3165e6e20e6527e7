package follow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"

	"railbed/capture/follow"
	"railbed/internal/wire"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// pair is a scene of two hosts at a soft switch, with links of 100 Mbit/s.
func pair(t *testing.T) *verifytest.Scene {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, softPair)
	return s
}

// stamps are the microseconds at which a frame leaves its NIC, comes to the switch, leaves it, and comes to
// the other NIC.
type stamps [4]int64

// unhindered are the times of a frame of 1,000 bytes that leaves at a time and waits nowhere.
func unhindered(at int64) stamps { return stamps{at, at + 90, at + 90, at + 180} }

// pass adds a segment of TCP from h0 to h1, or back, with 1,000 bytes on the wire if it has data.
func pass(s *verifytest.Scene, back bool, at stamps, segment golayers.TCP, data bool) (id uint64) {
	ends := []int{0, 1}
	if back {
		ends = []int{1, 0}
	}
	from, to := &s.Plan.Nodes[ends[0]], &s.Plan.Nodes[ends[1]]
	ip := &golayers.IPv4{Version: 4, TTL: 64, Id: uint16(s.IDs), Protocol: golayers.IPProtocolTCP, TOS: 2,
		SrcIP: verifytest.Loopback(from).AsSlice(), DstIP: verifytest.Loopback(to).AsSlice()}
	segment.SrcPort, segment.DstPort = golayers.TCPPort(7000+ends[0]), golayers.TCPPort(7000+ends[1])
	segment.SetNetworkLayerForChecksum(ip)
	var payload gopacket.Payload
	if data {
		payload = make([]byte, 1000-54)
	}
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&golayers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6),
			EthernetType: golayers.EthernetTypeIPv4}, ip, &segment, payload)
	if err != nil {
		s.T.Fatal(err)
	}
	s.IDs++
	for i, tap := range []string{fmt.Sprintf("h%d:eth0", ends[0]), fmt.Sprintf("leaf1:p%d", ends[0]),
		fmt.Sprintf("leaf1:p%d", ends[1]), fmt.Sprintf("h%d:eth0", ends[1])} {
		comment := ""
		if i == 1 || i == 2 {
			comment = "railbed depth=0 late=0ns"
		}
		s.Insert(verifytest.Sighting{Tap: tap, Out: i%2 == 0, Time: verifytest.Start + at[i]*1000, ID: s.IDs,
			Frame: slices.Clone(b.Bytes()), Length: len(b.Bytes()), Comment: comment, Queue: 4})
	}
	s.Now = max(s.Now, verifytest.Start+at[3]*1000)
	return s.IDs
}

// causes returns the causes of the only answer, without the times between the scene's messages.
func causes(t *testing.T, s *verifytest.Scene) (answer follow.Answer, texts string) {
	t.Helper()
	return causesOf(read(t, s))
}

// causesOf formats the causes of the messages of h0, without idle times.
func causesOf(r *follow.Recording) (answer follow.Answer, texts string) {
	answers := r.Why(r.Select(follow.Selection{From: "h0"}))
	answers[0].Causes = slices.DeleteFunc(answers[0].Causes, func(c follow.Cause) bool {
		return strings.HasPrefix(c.What, "no message was under way")
	})
	for _, c := range answers[0].Causes {
		texts += fmt.Sprintf("%s at %s: %s\n", c.Part, strings.Join(c.Where, ", "), c.What)
	}
	return answers[0], texts
}

func wantFirst(t *testing.T, texts, want string) {
	t.Helper()
	if !strings.HasPrefix(texts, want) {
		t.Errorf("the causes are\n%swant first\n%s", texts, want)
	}
}

// TestWhyNamesTheLinkThatChangedBytes: one of 20 packets comes with a flipped bit, and its bytes come again.
func TestWhyNamesTheLinkThatChangedBytes(t *testing.T) {
	s := pair(t)
	for i := range uint32(20) {
		whole := golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true}
		id := pass(s, false, unhindered(int64(i)*20_000), whole, true)
		if i != 10 {
			continue
		}
		s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == "h1:eth0" },
			func(k *verifytest.Sighting) { k.Frame[100] ^= 4 })
		pass(s, false, unhindered(int64(i)*20_000+10_000), whole, true)
	}
	answer, texts := causes(t, s)
	wantFirst(t, texts, "recover at leaf1:p1: bytes of packets changed on the link to h1:eth0, and their "+
		"receiver discarded them\n")
	if c := answer.Causes[0]; answer.Needless != 0 || answer.Lost != 1 || c.Messages != 1 || c.Record != 44 {
		t.Errorf("%+v", answer)
	}
}

// TestWhyNamesAReceiveWindow: the receiver has room for two segments. Each of its acknowledgements comes 2 ms
// after the second of them arrived, and the sender sends on at once. A window that fills while the
// packets still wait in a queue costs nothing.
func TestWhyNamesAReceiveWindow(t *testing.T) {
	for _, queued := range []bool{false, true} {
		s := pair(t)
		window := uint16(2 * 946 / 4)
		pass(s, true, unhindered(0), golayers.TCP{Seq: 1, SYN: true, ACK: true, Ack: 1, Window: 65535,
			Options: []golayers.TCPOption{{OptionType: golayers.TCPOptionKindWindowScale, OptionLength: 3,
				OptionData: []byte{2}}}}, false)
		pass(s, true, unhindered(1000), golayers.TCP{Seq: 2, ACK: true, Ack: 1, Window: window}, false)
		at, seq := int64(2000), uint32(1)
		for burst := range 10 {
			first, second := unhindered(at), unhindered(at+80)
			answer := second[3] + 2000
			if queued {
				second[2], second[3] = second[2]+2000, second[3]+2000
			}
			pass(s, false, first, golayers.TCP{Seq: seq, ACK: true}, true)
			pass(s, false, second, golayers.TCP{Seq: seq + 946, ACK: true, PSH: burst == 9}, true)
			seq += 2 * 946
			pass(s, true, stamps{answer - 30, answer - 20, answer - 20, answer - 10},
				golayers.TCP{Seq: 2, ACK: true, Ack: seq, Window: window}, false)
			at = answer
		}
		for i := range int64(20) { // writes that fit
			pass(s, false, unhindered(at+10_000+5_000*i), golayers.TCP{Seq: seq, ACK: true, PSH: true}, true)
			seq += 946
			pass(s, true, unhindered(at+11_000+5_000*i), golayers.TCP{Seq: 2, ACK: true, Ack: seq,
				Window: window}, false)
		}
		answer, texts := causes(t, s)
		const full = "host at h1: the TCP receive window was full (at most 1.89KB), so that h0 had to wait\n"
		if queued {
			if strings.Contains(texts, "receive window") {
				t.Errorf("the queue held the packets, and the causes are\n%s", texts)
			}
			continue
		}
		at2 := slices.IndexFunc(answer.Causes, func(c follow.Cause) bool { return c.Where[0] == "h1" })
		if !strings.Contains(texts, full) || at2 < 0 || answer.Causes[at2].Extra.Microseconds() != 9*1990 {
			t.Errorf("the causes are\n%s%+v", texts, answer)
		}
	}
}

// TestWhyNamesFewBytesInFlight: a sender with two segments in flight waits for each acknowledgement, although
// the receiver's window has room for 65. That is a cause if the bytes in flight do not grow, if the sender
// goes on at once after the acknowledgement, and, after a retransmission, if it lasts.
func TestWhyNamesFewBytesInFlight(t *testing.T) {
	const few = "host at h0: TCP kept few bytes in flight (at most 1.89KB) and waited for acknowledgements" +
		": its send buffer or its congestion window is small\n"
	for what, c := range map[string]struct {
		grows   uint32 // segments in flight, from one burst to the next
		late    int64
		repeats bool
		bursts  int
		cause   bool
	}{
		"small":      {bursts: 10, cause: true},
		"too short":  {bursts: 7},
		"it grows":   {bursts: 10, grows: 1},
		"program":    {bursts: 10, late: 3000},
		"after loss": {bursts: 10, repeats: true},
		"lasting":    {bursts: 70, repeats: true, cause: true},
	} {
		t.Run(what, func(t *testing.T) {
			s := pair(t)
			const window = 65 * 946 / 4
			pass(s, true, unhindered(0), golayers.TCP{Seq: 1, SYN: true, ACK: true, Ack: 1, Window: 65535,
				Options: []golayers.TCPOption{{OptionType: golayers.TCPOptionKindWindowScale, OptionLength: 3,
					OptionData: []byte{2}}}}, false)
			pass(s, true, unhindered(1000), golayers.TCP{Seq: 2, ACK: true, Ack: 1, Window: window}, false)
			at, seq := int64(2000), uint32(1)
			for burst := range c.bursts {
				last := unhindered(at)
				for i := range 2 + c.grows*uint32(burst) {
					last = unhindered(at + 80*int64(i))
					segment := golayers.TCP{Seq: seq, ACK: true, PSH: burst == c.bursts-1}
					pass(s, false, last, segment, true)
					if seq += 946; c.repeats && burst == 0 {
						pass(s, false, last, golayers.TCP{Seq: seq - 946, ACK: true}, true)
					}
				}
				answer := last[3] + 2000
				pass(s, true, stamps{answer - 30, answer - 20, answer - 20, answer - 10},
					golayers.TCP{Seq: 2, ACK: true, Ack: seq, Window: window}, false)
				at = answer + c.late
			}
			for i := range int64(20) { // writes of one segment
				write := golayers.TCP{Seq: seq, ACK: true, PSH: true}
				pass(s, false, unhindered(at+10_000+5_000*i), write, true)
				seq += 946
				pass(s, true, unhindered(at+11_000+5_000*i), golayers.TCP{Seq: 2, ACK: true, Ack: seq,
					Window: window}, false)
			}
			answer, texts := causes(t, s)
			if strings.Contains(texts, "few bytes") != c.cause || c.cause && !strings.Contains(texts, few) {
				t.Fatalf("the causes are\n%s", texts)
			}
			for _, of := range answer.Causes {
				if strings.Contains(few, of.What) && of.Extra.Microseconds() != int64(c.bursts-1)*1990 {
					t.Errorf("the causes are\n%s%+v", texts, answer)
				}
			}
		})
	}
}

// TestWhyNamesWhatWasSentAgain: the sender of each second message of eight packets goes back to the second
// and sends the rest 2 ms later. Packets of one DSCP may pass those of another. A drop of a packet or of an
// acknowledgement is the cause, although other packets overtook each other.
func TestWhyNamesWhatWasSentAgain(t *testing.T) {
	const (
		overtook = "recover at h0:eth0: packets overtook each other on the link to leaf1:p0 (15 of " +
			"285 were overtaken), and packets were sent again that had arrived\n"
		fault = "railbed verdict=drop reason=fault name=lossy depth=0 late=0ns"
	)
	for _, test := range []struct {
		what  string
		late  bool // the second packet comes to the switch after the third
		dscp  byte // of the second packet
		drop  int  // the number of the packet that is dropped, 8 for the acknowledgement
		first string
	}{
		{"overtaken", true, 0, 0, overtook},
		{"another DSCP", true, 48, 0, "recover at h0: sent bytes again that were not lost\n"},
		{"lost by a fault", true, 0, 1, "recover at leaf1:p0: dropped packets: fault lossy\n"},
		{"acknowledgement lost by a fault", true, 0, 8,
			"recover at leaf1:p1: dropped acknowledgements: fault lossy\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := pair(t)
			at, seq := int64(0), uint32(1)
			drop := func(id uint64, tap string) {
				kept := s.Of(id, tap, false)
				s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > kept.Time })
				kept.Comment, kept.Time = fault, kept.Time+10
				s.Insert(kept)
			}
			send := func(k int64, late int64) uint64 {
				way := unhindered(at)
				way[1], way[2], way[3] = way[1]+late, way[2]+late, way[3]+late
				at += 80
				return pass(s, false, way, golayers.TCP{Seq: seq + uint32(k)*946, ACK: true, PSH: k == 7},
					true)
			}
			for i := range 30 {
				disturbed := i%2 == 1
				for k := range int64(8) {
					if disturbed && k == 4 {
						if test.drop == 8 {
							drop(pass(s, true, unhindered(at+100), golayers.TCP{Seq: 1, ACK: true,
								Ack: seq}, false), "leaf1:p1")
						}
						at += 2000
						for again := range int64(3) {
							send(1+again, 0)
						}
					}
					id := send(k, map[bool]int64{true: 200}[disturbed && k == 1 && test.late])
					if disturbed && k == 1 {
						s.Change(func(k verifytest.Sighting) bool { return k.ID == id },
							func(k *verifytest.Sighting) { k.Frame[15] |= test.dscp << 2 })
						if test.drop == 1 {
							drop(id, "leaf1:p0")
						}
					}
				}
				seq += 8 * 946
				at += 5_000
			}
			answer, texts := causes(t, s)
			wantFirst(t, texts, test.first)
			again := read(t, s).MessageLife(1, false).Account[follow.Recover]
			extra := answer.Causes[0].Most.Nanoseconds()
			if want := int64(2000+3*80) * 1000; again != want || extra != want {
				t.Errorf("%d ns of recovery, and %d ns in the cause, want %d", again, extra, want)
			}
		})
	}
}

// TestWhyNamesASlowLink: one port's link has a tenth of the rate of the other links.
func TestWhyNamesASlowLink(t *testing.T) {
	s := verifytest.NewScene(t)
	s.Plan = plantest.Compile(t, strings.NewReplacer("hosts: 2", "hosts: 4", "delay: 10us}",
		"delay: 10us}, h1--leaf1: {rate: 10mbit}").Replace(softPair))
	for i := range uint32(10) {
		pass(s, false, unhindered(int64(i)*1000), golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true}, true)
	}
	for i := range int64(10) {
		pass(s, false, stamps{20_000, 20_090 + i*80, 20_090 + i*800, 20_180 + i*800},
			golayers.TCP{Seq: uint32(9461 + i*946), ACK: true, PSH: true}, true)
	}
	_, texts := causes(t, s)
	const want = "; its link has 10 Mbit/s, and most links beside it have 100 Mbit/s\n"
	if !strings.Contains(texts, want) {
		t.Errorf("the causes are\n%swant\n%s", texts, want)
	}
}

// TestWhyNamesThePortThatFilled: a port sends a fifth of its rate, and its switch stops the sender.
func TestWhyNamesThePortThatFilled(t *testing.T) {
	s := pair(t)
	for i := range uint32(10) {
		pass(s, false, unhindered(int64(i)*1000), golayers.TCP{Seq: 1 + i*946, ACK: true, PSH: true}, true)
	}
	const begin = 20_000
	for i := range int64(60) {
		came := begin + 90 + i*80
		if i >= 40 { // stopped
			came += 30_000
		}
		left := begin + 90 + i*400
		if i >= 40 {
			left = max(left, came)
		}
		pass(s, false, stamps{begin, came, left, left + 90}, golayers.TCP{Seq: uint32(9461 + i*946),
			ACK: true, PSH: true}, true)
	}
	s.Pause("leaf1:p0", verifytest.Start+(begin+3000)*1000, 65535)
	s.Pause("leaf1:p0", verifytest.Start+(begin+33_000)*1000, 0)
	_, texts := causes(t, s)
	const pace = "from 20.5ms on it sent 20 Mbit/s, and its link has 100 Mbit/s\n"
	for _, want := range []string{
		"pause at h0:eth0: flow control stopped the port: leaf1:p0 asked for it first, as the queue of " +
			"leaf1:p1 filled, to h1; " + pace,
		"queue at leaf1:p1: packets waited in the queue, behind packets from h0 (100%); " + pace,
	} {
		if !strings.Contains(texts, want) {
			t.Errorf("the causes are\n%swant\n%s", texts, want)
		}
	}
}

// TestWhyNamesWhatCongestionControlHeard: the switch marks packets, the receiver echoes the marks, and the
// sender sends little of each write.
func TestWhyNamesWhatCongestionControlHeard(t *testing.T) {
	s := pair(t)
	at := int64(0)
	for i := range uint32(40) {
		slow := i >= 20
		id := pass(s, false, unhindered(at), golayers.TCP{Seq: 1 + i*2*946, ACK: true}, true)
		if slow {
			s.Change(func(k verifytest.Sighting) bool { return k.ID == id && k.Tap == "leaf1:p1" },
				func(k *verifytest.Sighting) {
					k.Frame[15] |= byte(wire.CE)
					k.Comment = fmt.Sprintf("railbed verdict=mark reason=red depth=%d late=0ns", 1000+100*i)
				})
			at += 10_000
		}
		pass(s, false, unhindered(at+80), golayers.TCP{Seq: 947 + i*2*946, ACK: true, PSH: true}, true)
		pass(s, true, unhindered(at+1000), golayers.TCP{Seq: 1, ACK: true, Ack: 1 + (i+1)*2*946, ECE: slow,
			Window: 65535}, false)
		at += 5_000
	}
	_, texts := causes(t, s)
	wantFirst(t, texts, "host at h0: the sender sent nothing of the message; congestion control slowed it "+
		"down after 20 acknowledgements with ECE: "+
		"leaf1:p1 marked 20 packets with 3KB to 4.9KB in its queue\n")
}

// TestWhyTellsEachFault: a fault is a cause although it added less than a hundredth of the time.
func TestWhyTellsEachFault(t *testing.T) {
	for _, by := range []string{"fault name=lossy", "tail"} {
		s := pair(t)
		at, seq := int64(0), uint32(1)
		send := func(push bool) uint64 {
			at += 100
			return pass(s, false, unhindered(at), golayers.TCP{Seq: seq, ACK: true, PSH: push}, true)
		}
		for i := range 30 {
			id := send(false)
			if i == 20 {
				kept := s.Of(id, "leaf1:p0", false)
				s.Remove(func(k verifytest.Sighting) bool { return k.ID == id && k.Time > kept.Time })
				kept.Time, kept.Comment = kept.Time+10, "railbed verdict=drop reason="+by+" depth=0 late=0ns"
				s.Insert(kept)
				at += 1000
				send(false)
			}
			if i >= 20 {
				at += 50_000
			}
			seq += 946
			send(true)
			seq += 946
			at += 5000
		}
		_, texts := causes(t, s)
		const want = "recover at leaf1:p0: dropped packets: fault lossy\n"
		if told := strings.Contains(texts, "dropped"); told != strings.HasPrefix(by, "fault") ||
			told && !strings.Contains(texts, want) {
			t.Errorf("dropped by %s, and the causes are\n%s", by, texts)
		}
	}
}
