package picture

// box draws a switch, a server or a set of servers.
func (d *drawing) box(b *box) {
	devices := b.members
	if devices == nil {
		devices = []string{b.name}
	}
	d.open("devices", devices, b.title)
	if b.tier == serverTier {
		d.server(b)
	} else {
		d.Rect("bg", b.x, b.y, b.w, b.h, 7)
		d.Rect("b "+class(b.colour), b.x, b.y, b.w, b.h, 7)
		d.label(b, b.y, b.h)
	}
	d.Printf("</g>\n")
}

// label writes the name and, below it, the note into the part of a box that starts at top.
func (d *drawing) label(b *box, top, height float64) {
	y := top + height/2 + 4.5
	if b.note != "" {
		y -= 6.5
		d.Text("o", b.middle(), y+14, b.note)
	}
	d.Text("n", b.middle(), y, b.name)
}

// server draws the box, with its NICs as small ports on the top edge and a cell for each server of
// a set. Each NIC has the colour of its link.
func (d *drawing) server(b *box) {
	d.Rect("s", b.x, b.y, b.w, b.h, 5)
	colours := d.nicColours(b)
	for nic := range b.nics {
		at := b.nicPlace(nic)
		d.Rect("p "+class(colours[nic]), at.x-nicSize/2, b.y-nicSize/2, nicSize, nicSize, 1.5)
	}
	if b.members == nil {
		d.label(b, b.y, b.h)
		return
	}
	d.label(b, b.y+6, headHeight-8)
	left := b.middle() - float64(b.columns)*cellWidth/2
	for i, name := range b.members {
		x, y := left+float64(i%b.columns)*cellWidth, b.y+headHeight+float64(i/b.columns)*cellHeight
		d.Rect("e", x+1.5, y+1.5, cellWidth-3, cellHeight-3, 3)
		d.Text("m", x+cellWidth/2, y+cellHeight/2+3.5, clip(name))
	}
}

// clip shortens a name to the width of a cell.
func clip(name string) string {
	const most = 6
	if len(name) <= most {
		return name
	}
	return name[:2] + ".." + name[len(name)-2:]
}

// nicColours returns the colours of the links of a box's NICs.
func (d *drawing) nicColours(b *box) []int {
	colours := make([]int, b.nics)
	for nic := range colours {
		colours[nic] = neutral
	}
	for i := range d.lines {
		if l := &d.lines[i]; &d.boxes[l.a] == b {
			colours[l.nic] = l.colour
		}
	}
	return colours
}
