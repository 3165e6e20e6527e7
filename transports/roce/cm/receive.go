package cm

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/internal/infiniband"
)

// Receive processes a management datagram that arrived at QP1 from an address. It ignores datagrams
// that are not of communication management or match no connection.
func (m *Manager) Receive(now clock.Time, from netip.Addr, mad infiniband.MAD) {
	if !mad.Valid() || !mad.IsCM() {
		return
	}
	body, a := mad.CM(), mad.Attribute()
	if a == infiniband.AttributeREQ {
		m.requested(now, from, mad.Fields().Transaction, infiniband.REQ(body).Fields())
		return
	}
	names := infiniband.CommOf(body)
	c := m.conns[Conn(names.Remote)]
	// Before the answer to a REQ the peer's name is unknown.
	if c == nil || c.to != from || c.state != asking && names.Local != c.remote {
		if a == infiniband.AttributeDREQ && !m.config.Shared {
			m.answer(from, infiniband.AttributeDREP, mad.Fields().Transaction, func(b []byte) {
				infiniband.DREP(b).Encode(&infiniband.DREPFields{Comm: infiniband.Comm{Local: names.Remote,
					Remote: names.Local}})
			})
		}
		return
	}
	switch a {
	case infiniband.AttributeREP:
		m.granted(c, infiniband.REP(body).Fields())
	case infiniband.AttributeRTU:
		if c.state == granted {
			m.ready(c)
		}
	case infiniband.AttributeREJ:
		if f := infiniband.REJ(body).Fields(); c.state != connected && c.state != leaving {
			m.end(c, &RejectError{Reason: f.Reason, Private: slices.Clone(f.Private[:])})
		}
	case infiniband.AttributeMRA:
		if f := infiniband.MRA(body).Fields(); !c.delayed && (c.state == asking || c.state == granted) {
			c.delayed = true
			c.timer = max(c.timer, now.Add(min(infiniband.AckTimeout(f.Timeout), longestDelay)))
		}
	case infiniband.AttributeDREQ:
		if infiniband.DREQ(body).Fields().QPN != c.number {
			// as the kernel's ib_cm: an attacker may guess two names, but hardly three
			return
		}
		m.answer(from, infiniband.AttributeDREP, mad.Fields().Transaction, func(b []byte) {
			infiniband.DREP(b).Encode(
				&infiniband.DREPFields{Comm: infiniband.Comm{Local: uint32(c.local), Remote: c.remote}})
		})
		m.end(c, fmt.Errorf("%v: %w", c.to, ErrDisconnected))
	case infiniband.AttributeDREP:
		if c.state == leaving {
			m.remove(c)
		}
	}
}

// longestDelay is the most that an MRA delays a retry.
const longestDelay = 10 * time.Second

// requested processes a REQ.
func (m *Manager) requested(now clock.Time, from netip.Addr, transaction uint64, f infiniband.REQFields) {
	at := origin{from, f.LocalComm}
	if c := m.asked[at]; c != nil { // received again
		switch c.state {
		case granted:
			m.send(c.to, &c.message)
		case asked:
			c.timer = now.Add(m.patience())
		}
		return
	}
	refuse := func(reason uint16) {
		m.reject(from, transaction, infiniband.REJFields{Comm: infiniband.Comm{Remote: f.LocalComm},
			Reason: reason})
	}
	service := infiniband.IPService(f.Private[:])
	port := uint16(f.Service)
	known := f.Service&^0xFFFF == infiniband.TCPService && m.ports[port]
	switch {
	case !known && m.config.Shared:
		return
	case !known || !service.Valid():
		refuse(infiniband.RejectServiceID)
		return
	case f.Transport != 0:
		refuse(infiniband.RejectService)
		return
	case infiniband.MTU(f.MTU) == 0:
		refuse(infiniband.RejectMTU)
		return
	}
	c, err := m.add(from, asked)
	if err != nil {
		refuse(infiniband.RejectNoQP)
		return
	}
	c.remote, c.transaction, c.timer = f.LocalComm, transaction, now.Add(m.patience())
	c.offer = Offer{
		QPN:        f.QPN,
		PSN:        f.PSN,
		Resources:  f.Resources,
		Depth:      f.Depth,
		Retries:    f.Retries,
		RNRRetries: f.RNRRetries,
		AckTimeout: f.Primary.AckTimeout,
		MTU:        f.MTU,
		Private:    slices.Clone(f.Private[infiniband.IPServiceLen:]),
	}
	m.asked[at] = c
	m.host.Requested(c.local, netip.AddrPortFrom(from, service.Fields().Port), port, c.offer)
}

// granted processes a REP.
func (m *Manager) granted(c *conn, f infiniband.REPFields) {
	if c.state != asking && !(c.state == connected && c.remote == f.LocalComm) {
		return
	}
	first := c.state == asking
	if first {
		c.remote = f.LocalComm
		c.offer = Offer{
			QPN:        f.QPN,
			PSN:        f.PSN,
			Resources:  f.Resources,
			Depth:      f.Depth,
			RNRRetries: f.RNRRetries,
			AckTimeout: f.AckDelay,
			Private:    slices.Clone(f.Private[:]),
		}
	}
	m.answer(c.to, infiniband.AttributeRTU, c.transaction, func(b []byte) {
		infiniband.RTU(b).Encode(
			&infiniband.RTUFields{Comm: infiniband.Comm{Local: uint32(c.local), Remote: c.remote}})
	})
	if first {
		m.ready(c)
	}
}
