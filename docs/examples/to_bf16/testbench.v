module testbench;
  reg [55:0] vectors [0:9999];  // word [55:0]: x [55:24]; result [23:8]; flags [7:0]
  reg [31:0] x;
  wire [15:0] y;
  integer i, file;
  to_bf16 dut(x, y);
  initial begin
    $readmemh("vectors.mem", vectors);
    file = $fopen("results.mem", "w");
    for (i = 0; i < 10000; i = i + 1) begin
      x = vectors[i][55:24];
      #1 $fdisplay(file, "%h", y);
    end
    $fclose(file);
  end
endmodule
