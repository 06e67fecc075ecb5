module to_bf16(input [31:0] x, output [15:0] y);
  assign y = x[31:16];
endmodule
