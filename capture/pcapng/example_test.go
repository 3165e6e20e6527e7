package pcapng_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"railbed/capture/pcapng"
)

// A Reader reads pcapng and pcap files of any program.
func ExampleReader() {
	file, err := os.Open("../verify/rocechecks/testdata/rxe/write-lost-behind.pcap")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	reader, err := pcapng.NewReader(file)
	if err != nil {
		log.Fatal(err)
	}
	packets, bytes := 0, 0
	for {
		packet, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		packets, bytes = packets+1, bytes+packet.Length
	}
	fmt.Println(packets, "packets,", bytes, "bytes")
	// Output:
	// 60 packets, 47760 bytes
}
