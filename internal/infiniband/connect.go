package infiniband

import "encoding/binary"

// Layout of a REQ (12.6.5, table 106): offsets in bytes behind the MAD header.
const (
	reqLocalComm   = 0
	reqService     = 8
	reqCAGUID      = 16
	reqQKey        = 28
	reqQPN         = 32
	reqResources   = 35
	reqDepth       = 39
	reqRemote      = 43 // response timeout 5 bits, transport service 2, flow control 1
	reqPSN         = 44
	reqLocal       = 47 // response timeout 5 bits, retry count 3
	reqPKey        = 48
	reqMTU         = 50 // MTU 4 bits, RDC 1, RNR retry count 3
	reqMaxRetries  = 51 // retries 4 bits, SRQ 1, extended transport 3
	reqPrimary     = 52
	reqAlternate   = 96
	reqPrivate     = 140
	reqPathLen     = 44
	pathLocalLID   = 0
	pathRemoteLID  = 2
	pathLocalGID   = 4
	pathRemoteGID  = 20
	pathFlow       = 36 // flow label 20 bits, 6 reserved, packet rate 6
	pathTraffic    = 40
	pathHops       = 41
	pathService    = 42 // service level 4 bits, subnet local 1
	pathAckTimeout = 43 // 5 bits

	// REQPrivate is the number of bytes of private data in a REQ.
	REQPrivate = CMLen - reqPrivate
)

// REQ requests a connection: the message of a MAD with AttributeREQ.
type REQ []byte

// REQFields are the fields of a REQ, except those for reliable datagrams.
type REQFields struct {
	LocalComm uint32 // names the connection at the sender
	Service   uint64 // of rdma_cm: see TCPService
	CAGUID    uint64 // the sender's adapter
	QKey      uint32
	QPN       QPN // the sender's queue pair
	// Resources is the number of READs and atomics that the sender can process at once as a
	// responder. Depth is the requested number of outstanding READs and atomics as a requester.
	Resources, Depth uint8
	// RemoteTimeout and LocalTimeout are codes of AckTimeout for answers to this
	// message.
	RemoteTimeout, LocalTimeout uint8
	Transport                   uint8 // transport service: 0 RC, 1 UC
	FlowControl                 bool  // end-to-end credits
	PSN                         PSN   // the first PSN that the receiver sends
	Retries, RNRRetries         uint8 // 3 bits each; 7 RNR retries mean no limit
	PKey                        uint16
	MTU                         uint8 // code of MTU
	MaxRetries                  uint8 // of communication management messages, 4 bits
	SRQ                         bool
	Primary, Alternate          Path
	Private                     [REQPrivate]byte
}

// Path is a path in a REQ. LIDs, packet rate and service level have no meaning in RoCE.
type Path struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID [16]byte // IPv4 addresses are mapped into IPv6
	FlowLabel           uint32   // 20 bits
	PacketRate          uint8    // 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	ServiceLevel        uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // code of AckTimeout
}

// Valid reports whether the bytes hold a REQ.
func (m REQ) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m REQ) Fields() REQFields {
	f := REQFields{
		LocalComm:     binary.BigEndian.Uint32(m[reqLocalComm:]),
		Service:       binary.BigEndian.Uint64(m[reqService:]),
		CAGUID:        binary.BigEndian.Uint64(m[reqCAGUID:]),
		QKey:          binary.BigEndian.Uint32(m[reqQKey:]),
		QPN:           QPN(uint24(m[reqQPN:])),
		Resources:     m[reqResources],
		Depth:         m[reqDepth],
		RemoteTimeout: field(m[reqRemote], 3, 5),
		Transport:     field(m[reqRemote], 1, 2),
		FlowControl:   flag(m[reqRemote], 1),
		PSN:           PSN(uint24(m[reqPSN:])),
		LocalTimeout:  field(m[reqLocal], 3, 5),
		Retries:       field(m[reqLocal], 0, 3),
		PKey:          binary.BigEndian.Uint16(m[reqPKey:]),
		MTU:           field(m[reqMTU], 4, 4),
		RNRRetries:    field(m[reqMTU], 0, 3),
		MaxRetries:    field(m[reqMaxRetries], 4, 4), SRQ: flag(m[reqMaxRetries], 8),
		Primary: readPath(m[reqPrimary:]), Alternate: readPath(m[reqAlternate:]),
	}
	copy(f.Private[:], m[reqPrivate:])
	return f
}

// Encode writes a REQ of CMLen bytes.
func (m REQ) Encode(f *REQFields) {
	clear(m[:CMLen])
	binary.BigEndian.PutUint32(m[reqLocalComm:], f.LocalComm)
	binary.BigEndian.PutUint64(m[reqService:], f.Service)
	binary.BigEndian.PutUint64(m[reqCAGUID:], f.CAGUID)
	binary.BigEndian.PutUint32(m[reqQKey:], f.QKey)
	putUint24(m[reqQPN:], uint32(f.QPN))
	m[reqResources], m[reqDepth] = f.Resources, f.Depth
	m[reqRemote] = f.RemoteTimeout<<3 | f.Transport&3<<1 | mask(f.FlowControl, 1)
	putUint24(m[reqPSN:], uint32(f.PSN))
	m[reqLocal] = f.LocalTimeout<<3 | f.Retries&7
	binary.BigEndian.PutUint16(m[reqPKey:], f.PKey)
	m[reqMTU] = f.MTU<<4 | f.RNRRetries&7
	m[reqMaxRetries] = f.MaxRetries<<4 | mask(f.SRQ, 8)
	writePath(m[reqPrimary:], &f.Primary)
	writePath(m[reqAlternate:], &f.Alternate)
	copy(m[reqPrivate:CMLen], f.Private[:])
}

func readPath(b []byte) Path {
	return Path{
		LocalLID:  binary.BigEndian.Uint16(b[pathLocalLID:]),
		RemoteLID: binary.BigEndian.Uint16(b[pathRemoteLID:]),
		LocalGID:  [16]byte(b[pathLocalGID:]), RemoteGID: [16]byte(b[pathRemoteGID:]),
		FlowLabel: binary.BigEndian.Uint32(b[pathFlow:]) >> 12, PacketRate: b[pathFlow+3] & 0x3F,
		TrafficClass: b[pathTraffic],
		HopLimit:     b[pathHops],
		ServiceLevel: field(b[pathService], 4, 4),
		SubnetLocal:  flag(b[pathService], 8),
		AckTimeout:   field(b[pathAckTimeout], 3, 5),
	}
}

func writePath(b []byte, p *Path) {
	_ = b[reqPathLen-1]
	binary.BigEndian.PutUint16(b[pathLocalLID:], p.LocalLID)
	binary.BigEndian.PutUint16(b[pathRemoteLID:], p.RemoteLID)
	copy(b[pathLocalGID:], p.LocalGID[:])
	copy(b[pathRemoteGID:], p.RemoteGID[:])
	binary.BigEndian.PutUint32(b[pathFlow:], p.FlowLabel<<12|uint32(p.PacketRate&0x3F))
	b[pathTraffic], b[pathHops] = p.TrafficClass, p.HopLimit
	b[pathService] = p.ServiceLevel<<4 | mask(p.SubnetLocal, 8)
	b[pathAckTimeout] = p.AckTimeout << 3
}

// Layout of a REP (12.6.8, table 110).
const (
	repLocalComm  = 0
	repRemoteComm = 4
	repQKey       = 8
	repQPN        = 12
	repPSN        = 20
	repResources  = 24
	repDepth      = 25
	repDelay      = 26 // target ACK delay 5 bits, failover 2, flow control 1
	repRetries    = 27 // RNR retry count 3 bits, SRQ 1
	repCAGUID     = 28
	repPrivate    = 36

	// REPPrivate is the number of bytes of private data in a REP.
	REPPrivate = CMLen - repPrivate
)

// REP accepts a connection: the message of a MAD with AttributeREP.
type REP []byte

// REPFields are the fields of a REP, except those for reliable datagrams.
type REPFields struct {
	LocalComm, RemoteComm uint32 // names the connection at the sender, and at the receiver
	QKey                  uint32
	QPN                   QPN // the sender's queue pair
	PSN                   PSN // the first PSN that the receiver sends
	Resources, Depth      uint8
	AckDelay              uint8 // code of AckTimeout: how long the sender may take
	Failover              uint8 // 2 bits
	FlowControl           bool
	RNRRetries            uint8 // 3 bits
	SRQ                   bool
	CAGUID                uint64
	Private               [REPPrivate]byte
}

// Valid reports whether the bytes hold a REP.
func (m REP) Valid() bool { return len(m) >= CMLen }

// Fields reads all fields.
func (m REP) Fields() REPFields {
	f := REPFields{
		LocalComm:  binary.BigEndian.Uint32(m[repLocalComm:]),
		RemoteComm: binary.BigEndian.Uint32(m[repRemoteComm:]),
		QKey:       binary.BigEndian.Uint32(m[repQKey:]),
		QPN:        QPN(uint24(m[repQPN:])),
		PSN:        PSN(uint24(m[repPSN:])),
		Resources:  m[repResources], Depth: m[repDepth],
		AckDelay:    field(m[repDelay], 3, 5),
		Failover:    field(m[repDelay], 1, 2),
		FlowControl: flag(m[repDelay], 1),
		RNRRetries:  field(m[repRetries], 5, 3),
		SRQ:         flag(m[repRetries], 0x10),
		CAGUID:      binary.BigEndian.Uint64(m[repCAGUID:]),
	}
	copy(f.Private[:], m[repPrivate:])
	return f
}

// Encode writes a REP of CMLen bytes.
func (m REP) Encode(f *REPFields) {
	clear(m[:CMLen])
	binary.BigEndian.PutUint32(m[repLocalComm:], f.LocalComm)
	binary.BigEndian.PutUint32(m[repRemoteComm:], f.RemoteComm)
	binary.BigEndian.PutUint32(m[repQKey:], f.QKey)
	putUint24(m[repQPN:], uint32(f.QPN))
	putUint24(m[repPSN:], uint32(f.PSN))
	m[repResources], m[repDepth] = f.Resources, f.Depth
	m[repDelay] = f.AckDelay<<3 | f.Failover&3<<1 | mask(f.FlowControl, 1)
	m[repRetries] = f.RNRRetries<<5 | mask(f.SRQ, 0x10)
	binary.BigEndian.PutUint64(m[repCAGUID:], f.CAGUID)
	copy(m[repPrivate:CMLen], f.Private[:])
}
