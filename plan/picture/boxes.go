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
		d.printf(`<rect class="bg" x="%s" y="%s" width="%s" height="%s" rx="7"/>`, num(b.x), num(b.y),
			num(b.w), num(b.h))
		d.printf(`<rect class="b %s" x="%s" y="%s" width="%s" height="%s" rx="7"/>`, class(b.colour),
			num(b.x), num(b.y), num(b.w), num(b.h))
		d.label(b, b.y, b.h)
	}
	d.WriteString("</g>\n")
}

// label writes the name and, below it, the note into the part of a box that starts at top.
func (d *drawing) label(b *box, top, height float64) {
	y := top + height/2 + 4.5
	if b.note != "" {
		y -= 6.5
		d.printf(`<text class="o" x="%s" y="%s">%s</text>`, num(b.middle()), num(y+14), escape(b.note))
	}
	d.printf(`<text class="n" x="%s" y="%s">%s</text>`, num(b.middle()), num(y), escape(b.name))
}

// server draws the box, with its NICs as small ports on the top edge and a cell for each server of
// a set. Each NIC has the colour of its link.
func (d *drawing) server(b *box) {
	d.printf(`<rect class="s" x="%s" y="%s" width="%s" height="%s" rx="5"/>`, num(b.x), num(b.y), num(b.w),
		num(b.h))
	colours := d.nicColours(b)
	for nic := range b.nics {
		at := b.nicPlace(nic)
		d.printf(`<rect class="p %s" x="%s" y="%s" width="%s" height="%s" rx="1.5"/>`, class(colours[nic]),
			num(at.x-nicSize/2), num(b.y-nicSize/2), num(nicSize), num(nicSize))
	}
	if b.members == nil {
		d.label(b, b.y, b.h)
		return
	}
	d.label(b, b.y+6, headHeight-8)
	left := b.middle() - float64(b.columns)*cellWidth/2
	for i, name := range b.members {
		x, y := left+float64(i%b.columns)*cellWidth, b.y+headHeight+float64(i/b.columns)*cellHeight
		d.printf(`<rect class="e" x="%s" y="%s" width="%s" height="%s" rx="3"/>`, num(x+1.5), num(y+1.5),
			num(cellWidth-3), num(cellHeight-3))
		d.printf(`<text class="m" x="%s" y="%s">%s</text>`, num(x+cellWidth/2), num(y+cellHeight/2+3.5),
			escape(clip(name)))
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
