import java.io.*; import java.util.*;
/** Records what java.util.Properties reads from tricky files. */
public class PropertiesVectors {
  static String js(String s){ StringBuilder b=new StringBuilder("\""); for(char c: s.toCharArray()){ if(c=='"'||c=='\\') b.append('\\').append(c); else if(c<32||c>126) b.append(String.format("\\u%04x",(int)c)); else b.append(c);} return b.append("\"").toString(); }
  public static void main(String[] a){
    String[] files={"","a=b","a = b ","a:b","a b","a\tb","a\fb","a  =  b","a = = b","a : = b","a =: b","a","a=","a =","=b"," =b",":","  a=b","\ta=b","\fa=b","#a=b","!a=b","  #a=b","a=b#c","a=b # c","a=b\\\nc","a=b\\\n   c","a=b\\\n#c","a=b\\\n!c\nd=e","a=b\\\\\nc=d","a=b\\\\\\\nc=d","a=b\\\r\nc","a=b\\\rc","a=b\\\r\n\r\nc=d","a=b\\\n\nc=d","a=b\\\n  \nc=d","\\\na=b","\\\n#a\nb=c","  \\\n  a=b","a\\\nb=c","a\\=b=c","a\\:b=c","a\\ b=c","a\\\tb=c","a\\\\=b","a\\\\\\=b=c","\\#a=b","\\!a=b","#c\\\na=b","a=\\t\\n\\r\\f","a=\\q\\\\\\\"\\'","a=\\u0041","a=\\u00e9\\u20AC","a=\\ud83d\\ude00","a=\\u004","a=\\u004g","a=\\u","\\u0061=b","\\u003d=b","a\\u003db=c","a=\\U0041","a=b\\","a=b\\\\","a\\","\\","a=b\rc=d","a=b\r\nc=d","a=b\n\rc=d","\r\r\n\n","a=1\na=2","a=\u00e9","\u00e9=x","\u00c3\u00a9=\u00c3\u00a4","a=\u00a0b","\u00a0a=b","a=\u0085b","a=\u0000b","a= \\ b","a=\\ b","a=\\\n","a=\\\n\nb=c","a=\\\n  b","a \\\n = b","a \\\n b","a=b\\\n  \\\n  c","a=b  \\\n  c","key with spaces=v","A->B.topics=a, b","A->B.topics = a,\\\n  b,\\\n  c","clusters = A, B# cluster A follows","x=${file:/a:b}","x=C:\\\\dir","x=C:\\dir\\file","a=b=c","a==b","a::b","a=b:c d","\n\n  \n a=b\n  \n","a=b\n#c","#","!","# c\\\n d=e","a=b\u001a","a\u000b=b","a=\u000bb","!\\\na=b","\\  a=b","\\=a","\\:=\\=","a=b\\n c","a=\\\\n","a\\u0020b c=d","\\u0020=x","a=\\u0020b","a\\\r\n  \t b c"};
    StringBuilder o=new StringBuilder("[\n");
    for(int i=0;i<files.length;i++){ o.append("{\"file\": ").append(js(files[i])).append(", \"entries\": ");
      List<String> seen=new ArrayList<>();
      try{ Properties p=new Properties(){ public synchronized Object put(Object k,Object v){ seen.add("["+js((String)k)+", "+js((String)v)+"]"); return super.put(k,v);} };
        p.load(new ByteArrayInputStream(files[i].getBytes("ISO-8859-1"))); o.append("[").append(String.join(", ",seen)).append("]"); }
      catch(IllegalArgumentException e){ o.append("null"); } catch(IOException e){ throw new RuntimeException(e); }
      o.append("}").append(i+1<files.length?",\n":"\n"); }
    System.out.print(o.append("]\n"));
  }
}
